//! `mcp`: serves the tools to MCP clients, over stdio or HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::output::{self, CliError};
use super::reload::{self, Watch};
use super::{Common, host, signals};
use crate::mcp::{HttpError, HttpOptions, McpError, McpOptions, McpServer, Offer, Token};
use crate::policy::Policy;
use crate::registry::{LiveRegistry, LoadSelection};
use crate::tool::{ErrorCode, Failure};

const EXAMPLES: &str = "\
Examples:
  honeycomb-host mcp --plugins target/plugins --policy examples/policy.toml
  honeycomb-host mcp --plugins target/plugins --policy examples/policy.toml --http 127.0.0.1:8808
  HONEYCOMB_MCP_TOKEN=$(openssl rand -base64 24) honeycomb-host mcp --policy policy.toml --http 0.0.0.0:8808

An MCP client starts the first form itself:
  {\"mcpServers\": {\"honeycomb\": {\"command\": \"honeycomb-host\",
    \"args\": [\"mcp\", \"--plugins\", \"/path/to/plugins\", \"--policy\", \"/path/to/policy.toml\"]}}}

stdout carries the protocol and nothing else. Calls that the policy says to `ask` about are asked in the client, where it can
(elicitation), and denied where it cannot. Over HTTP the endpoint is /mcp; there is no TLS, so put a proxy before it where others
could listen.";

/// `mcp`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(super) struct McpArgs {
    /// Serve Streamable HTTP at this address, such as 127.0.0.1:8808, in place of stdio
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    http: Option<SocketAddr>,
    /// The environment variable with the bearer token; required when the address is not loopback
    #[arg(long, value_name = "NAME", default_value = "HONEYCOMB_MCP_TOKEN")]
    token_env: String,
    /// A name that HTTP clients may use for this host, beside loopback's and the address; may be repeated
    #[arg(long, value_name = "HOST", requires = "http")]
    allowed_host: Vec<String>,
    /// A web page's origin that may use the server, such as https://app.example.com:443; may be repeated
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allowed_origin: Vec<String>,
    /// HTTP sessions at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..), requires = "http")]
    max_sessions: u16,
    /// An HTTP session ends when nothing happens in it for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..), requires = "http")]
    session_idle: u64,
    /// Offer the tools of this plugin under their own names, without `plugin__`
    #[arg(long, value_name = "PLUGIN")]
    bare_names: Option<String>,
    /// Offer `search_tools` and `call_tool` in place of the tools, for clients with few tool slots
    #[arg(long)]
    generic_tools: bool,
}

pub(super) async fn mcp(common: &Common, args: &McpArgs) -> Result<ExitCode, CliError> {
    let policy = host::load_policy(&common.policy)?;
    let http = match args.http {
        Some(address) => Some((listen(address).await?, http_options(args)?)),
        None => None,
    };
    if common.policy.is_empty() {
        output::note("no --policy was given, so there are no tools; `honeycomb-host policy suggest` writes a starter");
    }
    let stop = CancellationToken::new();
    signals::cancel_on_signal(stop.clone());
    let server = McpServer::new(McpOptions { bare_names: args.bare_names.clone(), generic_tools: args.generic_tools });
    let serving = async {
        match http {
            None => {
                let served = server.serve_lines(tokio::io::stdin(), tokio::io::stdout(), stop.clone()).await;
                served.map_err(|error| CliError::failed(anyhow::Error::new(error)))
            }
            Some((listener, options)) => server.serve_http(listener, options, stop.clone()).await.map_err(http_error),
        }
    };
    // Beside the handshake, not before it: clients give up on a server that compiles first.
    let loading = async {
        let loaded = load(common, policy, &server).await;
        if let Err(error) = &loaded {
            server.failed(Failure::new(ErrorCode::HOST_INTERNAL, error.to_string()));
            stop.cancel();
        }
        loaded
    };
    // What loading returns follows the policy's files until the server ends.
    let (served, loaded) = {
        tokio::pin!(serving);
        tokio::pin!(loading);
        tokio::select! {
            served = &mut serving => (served, Ok(None)),
            loaded = &mut loading => (serving.await, loaded.map(Some)),
        }
    };
    drop(loaded?);
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn load(common: &Common, policy: Arc<Policy>, server: &McpServer) -> Result<Watch, CliError> {
    let (registry, report) = host::open_audited_registry(common, policy, LoadSelection::Granted).await?;
    if !report.skipped.is_empty() {
        tracing::info!("not loaded, since the policy has no block for them: {}", report.skipped.join(", "));
    }
    let registry = Arc::new(LiveRegistry::new(registry));
    server.ready(Offer { tools: Arc::clone(&registry) as _, registry: Arc::clone(&registry) }).map_err(|error| {
        let hint = match &error {
            McpError::NoSuchPlugin { .. } => {
                "`--bare-names` takes the id of a plugin that the policy has a block for and that loads"
            }
            _ => "leave `--bare-names` out, or rename one of the two tools",
        };
        CliError::config(anyhow::Error::new(error)).hint(hint)
    })?;
    Ok(reload::watch(common, registry))
}

async fn listen(address: SocketAddr) -> Result<TcpListener, CliError> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on `{address}`"));
    let listener = listener.map_err(|error| CliError::failed(error).hint("choose another port with `--http`"))?;
    if let Ok(address) = listener.local_addr() {
        output::note(&format!("serving MCP at http://{address}/mcp"));
    }
    Ok(listener)
}

fn http_options(args: &McpArgs) -> Result<HttpOptions, CliError> {
    let name = &args.token_env;
    let token = match std::env::var(name) {
        Ok(text) if !text.is_empty() => {
            let token = Token::new(&text).with_context(|| format!("the environment variable `{name}`"));
            Some(token.map_err(|error| CliError::config(error).hint("such as the output of `openssl rand -base64 24`"))?)
        }
        Ok(_) | Err(std::env::VarError::NotPresent) => None,
        Err(error) => return Err(CliError::config(anyhow::Error::new(error).context(format!("cannot read `{name}`")))),
    };
    Ok(HttpOptions {
        token,
        allowed_hosts: args.allowed_host.clone(),
        allowed_origins: args.allowed_origin.clone(),
        max_sessions: usize::from(args.max_sessions),
        session_idle: Duration::from_secs(args.session_idle),
    })
}

fn http_error(error: HttpError) -> CliError {
    let hint = match &error {
        HttpError::NoToken(_) => "set HONEYCOMB_MCP_TOKEN (or the variable that `--token-env` names), or serve 127.0.0.1",
        _ => "serve another address with `--http`",
    };
    CliError::config(anyhow::Error::new(error)).hint(hint)
}

/// An address and a port; `localhost` is 127.0.0.1. Other names are refused: a name can lead anywhere.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix("localhost:") {
        let port = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| "not an address and a port, such as 127.0.0.1:8808".to_owned())
}
