//! A model server that answers from a script, as strict as the real ones: for trying clients, and this host, without a model.

use std::io::Write as _;

use anyhow::Context as _;
use honeycomb_tests::fakellm::{FakeLlm, script};

const USAGE: &str = "\
usage: fakellm SCRIPT.toml [--port N] [--lenient]

Speaks OpenAI's chat completions (/v1/chat/completions) and Anthropic's messages (/v1/messages) on 127.0.0.1, and prints its address.
Answers from the script in turn, and refuses, with the providers' own words, what they refuse; with --lenient it takes anything.
The format of scripts is described in tests/src/fakellm/script.rs.";

fn main() -> anyhow::Result<()> {
    let (mut file, mut port, mut strict) = (None, 0, true);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--port" => port = arguments.next().context(USAGE)?.parse().context("`--port` takes a number")?,
            "--lenient" => strict = false,
            _ if file.is_none() && !argument.starts_with('-') => file = Some(argument),
            _ => anyhow::bail!(USAGE),
        }
    }
    let file = file.context(USAGE)?;
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{file}`"))?;
    let answers = script::parse(&text).with_context(|| format!("`{file}`"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let server = FakeLlm::scripted(port, answers, strict).await.with_context(|| format!("cannot listen on port {port}"))?;
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{}", server.url())?;
        stdout.flush()?;
        std::future::pending().await
    })
}
