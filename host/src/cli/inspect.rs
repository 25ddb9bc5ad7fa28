//! `inspect FILE.wasm`: what a component is and asks for.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::output::{self, CliError};
use super::{Common, host, starter};
use crate::policy::Policy;
use crate::policy::Requests;
use crate::text::hex;
use crate::tool::{ErrorCode, Failure};

pub(super) async fn inspect(common: &Common, file: &Path) -> Result<ExitCode, CliError> {
    let sandbox = host::open_sandbox(common, &Policy::empty())?;
    let plugin = tokio::select! {
        loaded = sandbox.load(file, None) => loaded.map_err(Failure::from)?,
        () = super::signals::stop_requested() => return Err(CliError::interrupted()),
    };
    let requests = plugin.requests_text.as_deref().map(Requests::parse).transpose().map_err(|error| {
        Failure::new(ErrorCode::LOAD_INVALID, format!("the section `honeycomb:requests` is malformed: {error}"))
    })?;
    let id = file.file_stem().and_then(|stem| stem.to_str()).filter(|stem| crate::policy::is_plugin_id(stem)).unwrap_or("plugin");
    let starter = starter::of_tools(id, Some(&plugin.sha256), plugin.tools.iter(), requests.as_ref());
    if common.json {
        let tools: Vec<_> = plugin
            .tools
            .iter()
            .map(|tool| {
                json!({"name": tool.name, "title": tool.title, "description": tool.description, "input_schema": tool.input_schema,
                       "output_schema": tool.output_schema, "hints": tool.hints})
            })
            .collect();
        output::print_json(&json!({
            "file": file.display().to_string(),
            "kind": plugin.kind.as_str(),
            "sha256": hex(&plugin.sha256),
            "bytes": plugin.bytes,
            "imports": plugin.imports,
            "requests": plugin.requests_text,
            "tools": tools,
            "unsupported": plugin.unsupported.iter().map(|f| json!({"name": f.name, "reason": f.reason})).collect::<Vec<_>>(),
            "policy": starter,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    let _ = writeln!(text, "{}", file.display());
    let _ = writeln!(text, "  kind    {}", plugin.kind.as_str());
    let _ = writeln!(text, "  sha256  {}", hex(&plugin.sha256));
    let _ = writeln!(text, "  size    {}", output::bytes(plugin.bytes));
    for import in &plugin.imports {
        let _ = writeln!(text, "  import  {import}");
    }
    for tool in plugin.tools.iter() {
        let _ = writeln!(text, "  tool    {}: {}", tool.name, tool.description.lines().next().unwrap_or_default());
    }
    for function in &plugin.unsupported {
        let _ = writeln!(text, "  left out {}: {}", function.name, function.reason);
    }
    let _ = write!(text, "\nA policy that allows it:\n\n{starter}");
    output::print(&text);
    Ok(ExitCode::SUCCESS)
}
