//! Write Honeycomb tools in Rust.
//!
//! A tool is a struct. Its fields are the arguments, its doc comments are what the model reads, and its [`Tool`] implementation is
//! what it does:
//!
//! ```
//! use honeycomb_sdk::prelude::*;
//!
//! /// Counts the words of a text. Returns the number.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct CountWords {
//!     /// The text whose words are counted.
//!     text: String,
//! }
//!
//! impl Tool for CountWords {
//!     const NAME: &'static str = "count_words";
//!     const HINTS: Hints = Hints::READ_ONLY;
//!     type Output = usize;
//!
//!     fn call(self, _context: &Context) -> Result<usize> {
//!         Ok(self.text.split_whitespace().count())
//!     }
//! }
//!
//! honeycomb_sdk::export!(CountWords);
//! # let tool = CountWords { text: "one two".to_owned() };
//! # assert_eq!(tool.call(&Context::test()).expect("counts"), 2);
//! ```
//!
//! # The crate around it
//!
//! A plugin is a library of type `cdylib` with three dependencies: `honeycomb-sdk`, `serde` and `schemars` (the derives name their own
//! crates). There is no WIT and no code generator in it. Build it for `wasm32-wasip2`, and the `.wasm` file is the plugin.
//!
//! # What a tool may use
//!
//! The [`Context`] has it all: [`http`](Context::http), [`kv`](Context::kv), [`config`](Context::config), [`log`](Context::log),
//! [`progress`](Context::progress) and what is known about the [`call`](Context::call). Files come through `std::fs`, in the
//! directories that the operator mounts. All of it works as far as the operator's policy grants it, and no further: say what the
//! plugin wants in a file of [`requests!`], and expect a denial.
//!
//! Each call runs in an instance of its own, so there is no state in memory between calls; [`kv`](Context::kv) keeps it.
//!
//! # Errors
//!
//! An [`Error`] has a message for the model: say what was wrong and what would be right. `?` turns any error into one. A cause goes
//! to the operator's log only. A panic ends the call; its message and place go to the operator's log.
//!
//! # Tests
//!
//! A tool is a plain struct, so plain `cargo test` tests it, on the machine it is written on. [`Context::test`] holds doubles for all
//! that a host provides:
//!
//! ```
//! use honeycomb_sdk::http::Response;
//! use honeycomb_sdk::prelude::*;
//!
//! /// Tells the time at a place.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct Time {
//!     /// The place, such as `北京`.
//!     place: String,
//! }
//!
//! impl Tool for Time {
//!     const NAME: &'static str = "time";
//!     const HINTS: Hints = Hints::LOOKUP;
//!     type Output = String;
//!
//!     fn call(self, context: &Context) -> Result<String> {
//!         if self.place.is_empty() {
//!             return Err(Error::invalid_arguments("`place` is empty: name a city"));
//!         }
//!         let response = context.http().get("https://time.example/now").query("place", &self.place).send()?.success()?;
//!         Ok(response.text()?)
//!     }
//! }
//!
//! let context = Context::test().with_http(|request| {
//!     assert_eq!(request.url, "https://time.example/now?place=%E5%8C%97%E4%BA%AC");
//!     Ok(Response::new(200).with_body("12:00"))
//! });
//! let time = Time { place: "北京".to_owned() };
//! assert_eq!(time.call(&context).expect("the double answers"), "12:00");
//!
//! // Nothing is granted unless the test grants it, as in the sandbox.
//! let time = Time { place: "北京".to_owned() };
//! assert_eq!(time.call(&Context::test()).expect_err("denied").kind(), ErrorKind::Denied);
//! ```
#![doc(test(attr(deny(warnings))))]

pub mod config;
mod context;
mod error;
mod export;
pub mod http;
pub mod kv;
mod output;
mod schema;
mod tool;

#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod bindings;
#[cfg(target_family = "wasm")]
mod guest;

pub use context::{Call, Context, Level};
#[cfg(not(target_family = "wasm"))]
pub use context::{LogLine, ProgressReport};
pub use error::{Error, ErrorKind, Result};
pub use output::{Content, Contents};
pub use tool::{Hints, Tool};

pub use serde_json;

/// What a tool usually needs: `use honeycomb_sdk::prelude::*;`.
pub mod prelude {
    pub use crate::{Contents, Context, Error, ErrorKind, Hints, Level, Result, Tool};
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}

/// What the macros expand to. No part of the interface.
#[doc(hidden)]
pub mod __private {
    #[cfg(target_family = "wasm")]
    pub use crate::bindings;
    #[cfg(target_family = "wasm")]
    pub use crate::guest::Plugin;
    pub use crate::tool::{Definition, call, check, define, unknown};
}
