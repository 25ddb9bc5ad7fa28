//! What can be wrong with a value on its way in or out.

use std::fmt::Display;

/// Arguments that are not what the tool's schema wants.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("at `{}`: {message}", if pointer.is_empty() { "/" } else { pointer.as_str() })]
pub(crate) struct ArgsError {
    /// Where, as a JSON Pointer (RFC 6901).
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) message: String,
}

/// A result that has no JSON form.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the result has no JSON form: at `{}`: {message}", if pointer.is_empty() { "/" } else { pointer.as_str() })]
pub(crate) struct ResultError {
    /// Where, as a JSON Pointer (RFC 6901).
    pub(crate) pointer: String,
    /// What is wrong there.
    pub(crate) message: String,
}

impl ArgsError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { pointer: String::new(), message: message.into() }
    }

    /// The same, inside the member `segment`. Pointers grow outward, and only when something is wrong.
    pub(super) fn inside(mut self, segment: impl Display) -> Self {
        self.pointer.insert_str(0, &pointer_segment(&segment));
        self
    }
}

impl ResultError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { pointer: String::new(), message: message.into() }
    }

    /// The same, inside the member `segment`.
    pub(super) fn inside(mut self, segment: impl Display) -> Self {
        self.pointer.insert_str(0, &pointer_segment(&segment));
        self
    }
}

fn pointer_segment(segment: &impl Display) -> String {
    format!("/{}", segment.to_string().replace('~', "~0").replace('/', "~1"))
}
