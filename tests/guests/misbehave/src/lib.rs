//! Tools that do what tools must not. Each runs into one limit; none can hurt the host.

use std::time::Duration;

use honeycomb_sdk::prelude::*;

/// Works for ever and never comes to an end.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunAway {}

impl Tool for RunAway {
    const NAME: &'static str = "run_away";
    type Output = u64;

    fn call(self, _context: &Context) -> Result<u64> {
        let mut rounds = 0_u64;
        loop {
            rounds = std::hint::black_box(rounds.wrapping_add(1));
            if rounds == u64::MAX {
                return Ok(rounds);
            }
        }
    }
}

/// Sleeps.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sleep {
    /// How long, in milliseconds.
    milliseconds: u64,
}

impl Tool for Sleep {
    const NAME: &'static str = "sleep";
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        std::thread::sleep(Duration::from_millis(self.milliseconds));
        Ok("awake".to_owned())
    }
}

/// Takes memory until there is no more, and keeps it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Grow {}

impl Tool for Grow {
    const NAME: &'static str = "grow";
    type Output = usize;

    fn call(self, _context: &Context) -> Result<usize> {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        loop {
            kept.push(vec![1; 1024 * 1024]);
            if kept.len() > 1_000_000 {
                return Ok(kept.len());
            }
        }
    }
}

/// Panics with a message.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Panic {
    /// The message.
    message: String,
}

impl Tool for Panic {
    const NAME: &'static str = "panic";
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        panic!("{}", self.message)
    }
}

/// Ends the process.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Exit {
    /// The exit code.
    code: i32,
}

impl Tool for Exit {
    const NAME: &'static str = "exit";
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        std::process::exit(self.code)
    }
}

/// Prints a lot to stdout and stderr, dressed up as messages of the host's own protocol.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Print {
    /// How many lines.
    lines: u32,
}

impl Tool for Print {
    const NAME: &'static str = "print";
    type Output = String;

    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "that is what this tool is for")]
    fn call(self, _context: &Context) -> Result<String> {
        for line in 0..self.lines {
            println!("{{\"jsonrpc\":\"2.0\",\"id\":{line},\"result\":{{\"content\":[]}}}}");
            eprintln!("error: \u{1b}[2J\u{1b}[31mnot an error, line {line}");
        }
        Ok("printed".to_owned())
    }
}

/// Returns what it was given.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Echo {
    /// Any text.
    text: String,
}

impl Tool for Echo {
    const NAME: &'static str = "echo";
    type Output = String;
    const HINTS: Hints = Hints::READ_ONLY;

    fn call(self, _context: &Context) -> Result<String> {
        Ok(self.text)
    }
}

/// Returns a text of a given size.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Large {
    /// How many bytes.
    bytes: usize,
}

impl Tool for Large {
    const NAME: &'static str = "large";
    type Output = String;

    fn call(self, _context: &Context) -> Result<String> {
        Ok("x".repeat(self.bytes))
    }
}

/// Says what the guest can see of its host: arguments, environment and the root directory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LookAround {}

/// What the guest can see.
#[derive(Serialize, JsonSchema)]
struct Surroundings {
    arguments: Vec<String>,
    environment: Vec<String>,
    root: Vec<String>,
}

impl Tool for LookAround {
    const NAME: &'static str = "look_around";
    type Output = Surroundings;

    fn call(self, _context: &Context) -> Result<Surroundings> {
        let entries = std::fs::read_dir("/")
            .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect());
        Ok(Surroundings {
            arguments: std::env::args().collect(),
            environment: std::env::vars().map(|(name, value)| format!("{name}={value}")).collect(),
            root: entries.unwrap_or_default(),
        })
    }
}

/// Sends one HTTP request and returns the status and the start of the body.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Request {
    /// The method.
    method: String,
    /// The URL.
    url: String,
}

impl Tool for Request {
    const NAME: &'static str = "request";
    type Output = String;

    fn call(self, context: &Context) -> Result<String> {
        let response = context.http().request(&self.method, &self.url).send()?;
        let text: String = response.text()?.chars().take(200).collect();
        Ok(format!("{} {text}", response.status))
    }
}

honeycomb_sdk::export!(RunAway, Sleep, Grow, Panic, Exit, Print, Echo, Large, LookAround, Request);
