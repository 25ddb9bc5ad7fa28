//! The command line: the only place that prints, reads the environment and decides how the process ends.
//!
//! stdout carries the answer, or JSON with `--json`; everything else goes to stderr.

mod approve;
mod audit;
mod call;
mod chat;
mod doctor;
mod eval;
mod grants;
mod host;
mod inspect;
mod keyring;
mod mcp;
mod memory;
mod model;
mod output;
mod paths;
mod policy;
mod printer;
mod reload;
mod replay;
mod run;
mod session;
mod sessions;
mod settings;
mod signals;
mod starter;
mod terminal;
mod tools;
mod trusted;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::sandbox;
use output::CliError;

const EXAMPLES: &str = "\
Examples:
  honeycomb-host --plugins target/plugins --policy examples/policy.toml \"what is 123 + 456?\"
  honeycomb-host --plugins target/plugins --policy examples/policy.toml \"北京天气怎么样？适合跑步吗？\"
  honeycomb-host --plugins target/plugins --policy examples/policy.toml --workers 4 \"比较北京、巴黎和奥斯陆的天气\"
  honeycomb-host --plugins target/plugins --policy examples/policy.toml tools
  honeycomb-host --plugins target/plugins --policy examples/policy.toml call calculator/calculate --args '{\"expression\":\"123 + 456\"}' --json
  honeycomb-host --plugins target/plugins policy suggest weather > policy.toml
  honeycomb-host sessions list
  honeycomb-host policy explain calculator/calculate --policy examples/policy.toml --args '{\"expression\":\"1\"}'

The model:
  OPENAI_API_KEY, OPENAI_BASE_URL         any server that speaks OpenAI's chat completions
  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL   Anthropic's messages
  --model scripted:FILE                   a script that answers, for demos and tests

Exit codes: 0 done, 1 the task or tool failed, 2 usage, config or policy wrong, 130 interrupted.";

/// Runs AI agents whose tools are WASM components in a sandbox, with only what a policy grants.
#[derive(Debug, Parser)]
#[command(name = "honeycomb-host", version, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Option<Command>,
    /// What the agent shall do; without it, and on a terminal, a chat begins
    task: Option<String>,
    /// Write the run to a new file that `replay` takes
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// Options that every command takes.
#[derive(Args, Clone, Debug)]
struct Common {
    /// The directory of plugins (*.wasm)
    #[arg(long, global = true, value_name = "DIR", default_value = "plugins")]
    plugins: PathBuf,
    /// A policy file; may be given more than once: grants add up, any deny wins, limits take the smallest
    #[arg(long, global = true, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// A honeycomb.toml with model and agent settings; examples/honeycomb.toml has every key
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The model, such as `gpt-5-mini`, `claude-sonnet-4-5` or `scripted:FILE`
    #[arg(long, global = true, value_name = "MODEL")]
    model: Option<String>,
    /// The most steps (model calls) of a task
    #[arg(long, global = true, value_name = "N")]
    max_steps: Option<u32>,
    /// Let the model give parts of a task to workers, N of them at once; 0 does not let it [default: honeycomb.toml]
    #[arg(long, global = true, value_name = "N")]
    workers: Option<usize>,
    /// Print one JSON document, or JSON lines for a stream, on stdout
    #[arg(long, global = true)]
    json: bool,
    /// Say more on stderr; twice for even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Where compiled plugins are kept [default: $XDG_CACHE_HOME/honeycomb]
    #[arg(long, global = true, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    /// Where "always" answers to questions are kept [default: honeycomb/grants.toml in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    grants: Option<PathBuf>,
    /// Where sessions, plugins' key-value data, the memory and the audit file are kept [default: $XDG_STATE_HOME/honeycomb]
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where every decision and call is written down, or `none` [default: audit.jsonl in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Have every audit record on the disk before a call goes on; survives a power failure, and is slow
    #[arg(long, global = true)]
    audit_sync: bool,
    /// Continue this session, by its id or the beginning of it
    #[arg(long, global = true, value_name = "ID")]
    session: Option<String>,
    /// Keep nothing of what is said and done
    #[arg(long, global = true, visible_alias = "ephemeral", conflicts_with = "session")]
    no_session: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one task and print the answer (the default)
    Run {
        /// What the agent shall do
        task: String,
        /// Write the run to a new file that `replay` takes
        #[arg(long, value_name = "FILE")]
        record: Option<PathBuf>,
    },
    /// Chat on the terminal
    Chat,
    /// List every tool with its decision, grants and limits
    Tools,
    /// Call one tool, without a model
    Call(call::CallArgs),
    /// Show what a component is and asks for; runs no code of it beyond list-tools
    Inspect {
        /// The component
        file: PathBuf,
    },
    /// Serve the tools to MCP clients, over stdio or HTTP
    Mcp(mcp::McpArgs),
    /// Check, explain, test or suggest a policy
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Run scenarios, and say which did not come out as they should
    Eval(eval::EvalArgs),
    /// Replay a recorded run without model or tools, and say whether all is as it was
    Replay(replay::ReplayArgs),
    /// Verify or show the audit file
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// List or forget what the model has saved with `memory/save`
    #[command(subcommand)]
    Memory(memory::MemoryCommand),
    /// List, show, resume, delete and export sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// Say what is installed, and what is slow or unsafe here
    Doctor,
    /// Compile one component from stdin; the host starts this itself, under limits
    #[command(name = "__compile", hide = true)]
    Compile,
}

/// Runs the program.
pub fn main() -> ExitCode {
    // Before anything else: the child that compiles untrusted bytes must limit itself before it reads one.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "__compile") {
        return sandbox::compile_child_main(std::env::args_os().skip(2).map(|argument| argument.to_string_lossy().into_owned()));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap could not say whether `--json` is among the arguments; it is a word of its own or it is not.
        Err(error) => return output::clap_error(&error, std::env::args_os().any(|argument| argument == "--json")),
    };
    output::init_logging(cli.common.verbose);
    // stdout is the protocol's.
    let json = cli.common.json && !matches!(cli.command, Some(Command::Mcp(_)));
    match dispatch(cli) {
        Ok(code) => output::exit_code(code),
        Err(error) => output::report(&error, json),
    }
}

fn dispatch(cli: Cli) -> Result<ExitCode, CliError> {
    let Cli { common, command, task, record } = cli;
    if record.is_some() && (command.is_some() || task.is_none()) {
        return Err(CliError::usage("`--record` needs a task").hint("such as `honeycomb-host run --record FILE \"task\"`"));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::failed(anyhow::Error::new(error).context("cannot start the async runtime")))?;
    let code = runtime.block_on(async {
        signals::outlive_file_size_limit();
        match (command, task) {
            (None, Some(task)) => {
                refuse_mistyped_command(&task)?;
                run::run(&common, &task, record.as_deref()).await
            }
            (Some(Command::Run { task, record }), _) => run::run(&common, &task, record.as_deref()).await,
            (None, None) | (Some(Command::Chat), _) => chat::chat(&common).await,
            (Some(Command::Tools), _) => tools::tools(&common).await,
            (Some(Command::Call(args)), _) => call::call(&common, &args).await,
            (Some(Command::Inspect { file }), _) => inspect::inspect(&common, &file).await,
            (Some(Command::Mcp(args)), _) => mcp::mcp(&common, &args).await,
            (Some(Command::Policy(command)), _) => policy::policy(&common, command).await,
            (Some(Command::Eval(args)), _) => eval::eval(&common, &args).await,
            (Some(Command::Replay(args)), _) => replay::replay(&common, &args).await,
            (Some(Command::Audit(command)), _) => audit::audit(&common, &command),
            (Some(Command::Memory(command)), _) => memory::memory(&common, command).await,
            (Some(Command::Sessions(command)), _) => sessions::sessions(&common, command).await,
            (Some(Command::Doctor), _) => doctor::doctor(&common).await,
            (Some(Command::Compile), _) => Err(CliError::usage("`__compile` takes no other arguments")),
        }
    });
    // A tool or a prompt may hold a thread that nothing can interrupt; the answer is out, so do not wait for it.
    runtime.shutdown_background();
    code
}

/// A single word close to a command's name is a typing error more often than a task.
fn refuse_mistyped_command(task: &str) -> Result<(), CliError> {
    /// Commands that are to come: a client that starts one must not get a model's prose instead.
    const RESERVED: [&str; 5] = ["build", "dev", "new", "serve", "test"];
    const COMMANDS: [&str; 13] =
        ["run", "chat", "tools", "call", "inspect", "mcp", "policy", "audit", "memory", "sessions", "eval", "replay", "doctor"];
    if task.contains(char::is_whitespace) || !task.is_ascii() {
        return Ok(());
    }
    let lower = task.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) {
        return Err(CliError::usage(format!("this version has no command `{lower}`"))
            .hint(format!("to run it as a task, type `run {task}`")));
    }
    let task = lower.as_str();
    match COMMANDS.iter().find(|command| output::edit_distance(task, command) <= 1) {
        None => Ok(()),
        Some(command) => Err(CliError::usage(format!("there is no command `{task}`"))
            .hint(format!("did you mean `{command}`? to run it as a task, type `run {task}`"))),
    }
}
