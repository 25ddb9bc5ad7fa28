//! From `honeycomb.toml` to the agent's settings.

use std::path::Path;
use std::sync::Arc;

use super::output::CliError;
use super::{Common, paths};
use crate::agent::{
    Budget, ContextSettings, DisplaySettings, Price, ResultDisplay, RunnerSettings, SystemPrompt, WireRules, WorkerSettings,
};
use crate::config::{AgentConfig, Config, ContextConfig, PriceConfig, ResultConfig, ResultsConfig};
use crate::provider::price;
use crate::registry::model_name;
use crate::tool::ToolSpec;

/// The largest file with a system prompt, in bytes.
const MAX_PROMPT_BYTES: u64 = 256 * 1024;

/// Decides how the agent works with this model.
pub(super) fn runner_settings(common: &Common, config: &Config, model: &str) -> Result<RunnerSettings, CliError> {
    let mut settings = RunnerSettings::default();
    if let Some(prompt) = system_prompt(common, &config.agent)? {
        settings.prompt = prompt;
    }
    set(&mut settings.max_parallel, config.agent.max_parallel);
    set(&mut settings.max_parallel_per_plugin, config.agent.max_parallel_per_plugin);
    let known = price::lookup(model);
    let run = &mut settings.run;
    run.price = config.model.price.map(price_of).or_else(|| known.map(|known| known.price));
    set_budget(&mut run.budget, &config.agent);
    if let Some(max_steps) = common.max_steps {
        if max_steps == 0 {
            return Err(CliError::usage("`--max-steps` must not be zero"));
        }
        run.budget.max_steps = max_steps;
    }
    if run.budget.max_cost_micros.is_some() && run.price.is_none() {
        return Err(CliError::usage(format!("`agent.max_cost` cannot be kept: the price of `{model}` is not known"))
            .hint("add what you pay for a million tokens, such as `price = { input = 2.5, output = 10 }`, under `[model]`"));
    }
    set(&mut run.context.window_tokens, config.agent.context_window.or_else(|| known.map(|known| known.window)));
    set_context(&mut run.context, &config.agent.context);
    run.context.max_output_tokens = config.model.max_output_tokens;
    run.display = display(&config.agent.results);
    run.wire = WireRules::default();
    Ok(settings)
}

/// How workers are run; none if the model may not have any.
pub(super) fn worker_settings(common: &Common, config: &Config) -> Option<WorkerSettings> {
    let config = &config.agent.workers;
    if !common.workers.map_or(config.enabled, |workers| workers > 0) {
        return None;
    }
    let default = WorkerSettings::default();
    Some(WorkerSettings {
        max_depth: config.max_depth.unwrap_or(default.max_depth),
        max_per_call: config.max_per_call.unwrap_or(default.max_per_call),
        max_parallel: common.workers.or(config.max_parallel).unwrap_or(default.max_parallel),
        max_wall_ms: config.max_seconds.map(|seconds| seconds.saturating_mul(1000)).or(default.max_wall_ms),
        reserve_percent: config.reserve_percent.unwrap_or(default.reserve_percent),
        max_report_bytes: config.max_report_bytes.unwrap_or(default.max_report_bytes),
    })
}

/// The entries of `[agent.results.tools]` that match none of these tools: a misspelt name would change nothing, silently.
pub(super) fn unmatched<'a>(config: &'a Config, tools: &'a Arc<[ToolSpec]>) -> impl Iterator<Item = &'a str> {
    config.agent.results.tools.keys().map(String::as_str).filter(|key| {
        let pattern = visible(key);
        !tools.iter().any(|tool| match pattern.strip_suffix('*') {
            Some(prefix) => tool.name.starts_with(prefix),
            None => tool.name == pattern,
        })
    })
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn system_prompt(common: &Common, config: &AgentConfig) -> Result<Option<SystemPrompt>, CliError> {
    let parse = |text: &str, what: String| {
        SystemPrompt::new(text).map(Some).map_err(|error| {
            let hint = error.hint();
            CliError::config(anyhow::Error::new(error).context(what)).hint(hint)
        })
    };
    if let Some(text) = &config.system_prompt {
        return parse(text, "`agent.system_prompt`".to_owned());
    }
    let Some(file) = &config.system_prompt_file else { return Ok(None) };
    let directory = common.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let path = directory.join(file);
    let text = paths::read_text(&path, MAX_PROMPT_BYTES)
        .map_err(|error| CliError::config(error.context("`agent.system_prompt_file`")))?;
    parse(&text, format!("`{}`", path.display()))
}

fn set_budget(budget: &mut Budget, config: &AgentConfig) {
    set(&mut budget.max_steps, config.max_steps);
    set(&mut budget.max_tool_calls, config.max_tool_calls);
    set(&mut budget.max_workers, config.workers.max_per_run);
    set(&mut budget.max_wall_ms, config.max_seconds.map(|seconds| Some(seconds.saturating_mul(1000))));
    set(&mut budget.max_input_tokens, config.max_input_tokens.map(Some));
    set(&mut budget.max_output_tokens, config.max_output_tokens.map(Some));
    set(&mut budget.max_cost_micros, config.max_cost.map(|amount| Some(micros(amount))));
    set(&mut budget.max_fuel, config.max_fuel.map(Some));
}

fn set_context(context: &mut ContextSettings, config: &ContextConfig) {
    set(&mut context.max_history, config.max_history.map(Some));
    set(&mut context.reserve_percent, config.reserve_percent);
    set(&mut context.stub, config.stub);
    set(&mut context.stub_min_bytes, config.stub_min_bytes);
    set(&mut context.protect_tokens, config.protect_tokens);
    set(&mut context.summarise, config.summarise);
    set(&mut context.summary_max_bytes, config.summary_max_bytes);
    set(&mut context.summary_timeout_ms, config.summary_timeout_seconds.map(|seconds| seconds.saturating_mul(1000)));
}

fn display(config: &ResultsConfig) -> DisplaySettings {
    let ResultsConfig { max_bytes, tail_bytes, summarise, tools } = config;
    let all = ResultConfig { max_bytes: *max_bytes, tail_bytes: *tail_bytes, pointer: None, summarise: *summarise };
    let default = result(&ResultDisplay::default(), &all);
    let tools = tools.iter().map(|(key, config)| (visible(key), result(&default, config))).collect();
    DisplaySettings { default, tools }
}

fn result(base: &ResultDisplay, config: &ResultConfig) -> ResultDisplay {
    let max_bytes = config.max_bytes.unwrap_or(base.max_bytes);
    ResultDisplay {
        max_bytes,
        // A small cap has a small tail, in proportion, where nobody says otherwise.
        tail_bytes: config.tail_bytes.unwrap_or(base.tail_bytes.min(max_bytes / 8)),
        pointer: config.pointer.clone(),
        summarise: config.summarise.unwrap_or(base.summarise),
    }
}

/// `plugin/tool`, exact or with a trailing `*`, as the model sees it.
fn visible(key: &str) -> String {
    match (key.split_once('/'), key.strip_suffix('*')) {
        (Some((plugin, tool)), None) => model_name(plugin, tool),
        (_, prefix) => {
            let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
            let prefix = prefix.unwrap_or(key).replacen('/', "__", 1);
            format!("{}*", prefix.chars().map(legal).collect::<String>())
        }
    }
}

fn price_of(config: PriceConfig) -> Price {
    let PriceConfig { input, cached_input, output } = config;
    Price { input: micros(input), cached_input: micros(cached_input.unwrap_or(input)), output: micros(output) }
}

/// Millionths of an amount; the configuration has checked that it is one.
fn micros(amount: f64) -> u64 {
    (amount * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn settings(text: &str, model: &str) -> Result<RunnerSettings, CliError> {
        let common = super::super::Cli::parse_from(["honeycomb-host"]).common;
        runner_settings(&common, &Config::parse(text).expect("valid"), model)
    }

    #[test]
    fn the_documented_defaults_are_the_defaults() {
        let documented = settings(include_str!("../../../examples/honeycomb.toml"), "some-model").expect("valid");
        let default = settings("", "some-model").expect("valid");
        assert_eq!(documented.run, default.run);
        assert_eq!(
            (documented.max_parallel, documented.max_parallel_per_plugin),
            (default.max_parallel, default.max_parallel_per_plugin)
        );
    }

    #[test]
    fn every_agent_setting_arrives() {
        let text = "[agent]\nmax_steps = 3\nmax_tool_calls = 4\nmax_seconds = 5\nmax_input_tokens = 6\nmax_output_tokens = 7\n\
            max_cost = 0.5\nmax_fuel = 8\nmax_parallel = 9\nmax_parallel_per_plugin = 2\ncontext_window = 10\n\
            [agent.context]\nmax_history = 11\nreserve_percent = 12\nstub = false\nstub_min_bytes = 13\nprotect_tokens = 14\n\
            summarise = false\nsummary_max_bytes = 15\nsummary_timeout_seconds = 16\n[agent.workers]\nmax_per_run = 18\n[model]\nmax_output_tokens = 17\n";
        let settings = settings(text, "gpt-4.1").expect("valid");
        assert_eq!((settings.max_parallel, settings.max_parallel_per_plugin), (9, 2));
        let budget = Budget {
            max_steps: 3,
            max_tool_calls: 4,
            max_wall_ms: Some(5_000),
            max_input_tokens: Some(6),
            max_output_tokens: Some(7),
            max_cost_micros: Some(500_000),
            max_fuel: Some(8),
            max_workers: 18,
            ..Budget::default()
        };
        assert_eq!(settings.run.budget, budget);
        let context = ContextSettings {
            window_tokens: 10,
            max_output_tokens: Some(17),
            max_history: Some(11),
            reserve_percent: 12,
            stub: false,
            stub_min_bytes: 13,
            protect_tokens: 14,
            summarise: false,
            summary_max_bytes: 15,
            summary_timeout_ms: 16_000,
        };
        assert_eq!(settings.run.context, context);
    }

    #[test]
    fn a_price_in_the_file_wins_and_a_limit_on_cost_needs_one() {
        let price = |text: &str, model: &str| settings(text, model).expect("valid").run.price;
        let own = "[model]\nprice = { input = 2.5, output = 10 }\n";
        let expected = Price { input: 2_500_000, cached_input: 2_500_000, output: 10_000_000 };
        assert_eq!(price(own, "gpt-4.1"), Some(expected));
        assert_eq!(price(own, "qwen3"), Some(expected));
        assert_eq!(price("", "qwen3"), None);
        assert!(price("", "gpt-4.1").is_some());
        let error = settings("[agent]\nmax_cost = 1\n", "qwen3").map(|_| ()).expect_err("no price");
        assert!(error.to_string().contains("the price of `qwen3` is not known"), "{error}");
        assert!(settings(&format!("{own}[agent]\nmax_cost = 1\n"), "qwen3").is_ok());
    }

    #[test]
    fn results_are_shown_as_the_file_says_under_the_names_that_the_model_sees() {
        let text = "[agent.results]\nmax_bytes = 800\n[agent.results.tools.\"weather/get_weather\"]\npointer = \"/daily\"\n\
            [agent.results.tools.\"files/*\"]\nmax_bytes = 80\ntail_bytes = 40\n[agent.results.tools.\"p/天气\"]\nsummarise = true\n";
        let display = settings(text, "m").expect("valid").run.display;
        let shown = |max_bytes, tail_bytes| ResultDisplay { max_bytes, tail_bytes, pointer: None, summarise: false };
        assert_eq!(display.for_tool("other__tool"), &shown(800, 100));
        assert_eq!(display.for_tool("files__read_file"), &shown(80, 40));
        let weather = ResultDisplay { pointer: Some("/daily".to_owned()), ..shown(800, 100) };
        assert_eq!(display.for_tool("weather__get_weather"), &weather);
        assert!(display.for_tool(&model_name("p", "天气")).summarise);
    }
}
