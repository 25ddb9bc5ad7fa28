//! Which model answers: from `--model`, `honeycomb.toml` and the environment.

use std::sync::Arc;
use std::time::Duration;

use super::Common;
use super::output::CliError;
use super::paths;
use crate::config::{self, Config, MAX_CONFIG_BYTES};
use crate::provider::Provider;
use crate::provider::settings::{ApiKey, ProviderKind, ProviderSettings, build};

/// The model that is asked for when nobody names one.
const DEFAULT_OPENAI_MODEL: &str = "gpt-5-mini";
const DEFAULT_ANTHROPIC_MODEL: &str = "claude-sonnet-4-5";

/// Reads `--config`, if given.
pub(super) fn load_config(common: &Common) -> Result<Config, CliError> {
    let Some(file) = &common.config else { return Ok(Config::default()) };
    let text = paths::read_trusted_text(file, MAX_CONFIG_BYTES).map_err(CliError::config)?;
    Config::parse(&text).map_err(|error| CliError::config(anyhow::Error::new(error).context(format!("`{}`", file.display()))))
}

/// Makes the provider.
pub(super) fn open_provider(common: &Common, config: &Config) -> Result<Arc<dyn Provider>, CliError> {
    let model = common.model.as_deref().or(config.model.name.as_deref());
    let settings = settings(model, config, &|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))?;
    build(settings).map_err(|error| CliError::config(anyhow::Error::new(error)))
}

/// Decides on a provider; `env` reads a variable.
fn settings(model: Option<&str>, config: &Config, env: &dyn Fn(&str) -> Option<String>) -> Result<ProviderSettings, CliError> {
    if let Some(script) = model.and_then(|model| model.strip_prefix("scripted:")) {
        return Ok(ProviderSettings::new(ProviderKind::Scripted(script.into()), "scripted"));
    }
    let kind = match config.model.provider {
        Some(config::ProviderKind::OpenAi) => ProviderKind::OpenAi,
        Some(config::ProviderKind::Anthropic) => ProviderKind::Anthropic,
        None if model.is_some_and(|model| model.starts_with("claude")) => ProviderKind::Anthropic,
        None if env("OPENAI_API_KEY").is_some() || env("OPENAI_BASE_URL").is_some() => ProviderKind::OpenAi,
        None if model.is_none() && env("ANTHROPIC_API_KEY").is_some() => ProviderKind::Anthropic,
        None if model.is_some() || config.model.base_url.is_some() => ProviderKind::OpenAi,
        None => {
            return Err(CliError::usage("no model is configured").hint(
                "set OPENAI_API_KEY (or OPENAI_BASE_URL for a server of your own) or ANTHROPIC_API_KEY, and name a model with \
                 `--model`; `--model scripted:FILE` needs neither",
            ));
        }
    };
    let (default_model, key, base_url) = if kind == ProviderKind::Anthropic {
        (DEFAULT_ANTHROPIC_MODEL, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    } else {
        (DEFAULT_OPENAI_MODEL, "OPENAI_API_KEY", "OPENAI_BASE_URL")
    };
    let mut settings = ProviderSettings::new(kind, model.unwrap_or(default_model));
    settings.api_key = env(key).map(|key| ApiKey::new(&key));
    settings.base_url = config.model.base_url.clone().or_else(|| env(base_url));
    settings.temperature = config.model.temperature;
    settings.max_output_tokens = config.model.max_output_tokens;
    if let Some(stream) = config.model.stream {
        settings.stream = stream;
    }
    if let Some(seconds) = config.model.idle_timeout_seconds {
        settings.timeouts.idle = Duration::from_secs(seconds);
    }
    if let Some(seconds) = config.model.stall_timeout_seconds {
        settings.timeouts.stall = Duration::from_secs(seconds);
    }
    if let Some(concurrency) = config.model.concurrency {
        settings.concurrency = concurrency;
    }
    if let Some(attempts) = config.model.max_attempts {
        settings.retries.max_attempts = attempts;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(model: Option<&str>, variables: &[(&str, &str)]) -> Result<(ProviderKind, String), CliError> {
        let env = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        settings(model, &Config::default(), &env).map(|settings| (settings.kind, settings.model))
    }

    #[test]
    fn chooses_the_provider_that_can_answer() {
        let (openai, anthropic) = (("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k"));
        for (model, variables, kind, name) in [
            (None, vec![openai], ProviderKind::OpenAi, DEFAULT_OPENAI_MODEL),
            (None, vec![("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")], ProviderKind::OpenAi, DEFAULT_OPENAI_MODEL),
            (None, vec![anthropic], ProviderKind::Anthropic, DEFAULT_ANTHROPIC_MODEL),
            (None, vec![openai, anthropic], ProviderKind::OpenAi, DEFAULT_OPENAI_MODEL),
            (Some("claude-x"), vec![openai, anthropic], ProviderKind::Anthropic, "claude-x"),
            (Some("qwen"), vec![anthropic], ProviderKind::OpenAi, "qwen"),
            (Some("scripted:a.toml"), vec![], ProviderKind::Scripted("a.toml".into()), "scripted"),
        ] {
            assert_eq!(decide(model, &variables).expect("decides"), (kind, name.to_owned()), "{model:?} {variables:?}");
        }
        assert!(decide(None, &[]).is_err());
    }
}
