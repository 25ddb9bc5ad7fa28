//! Every way a guest can end, as a stable code with a message that says which limit it was and where to change it.

use std::fmt::Write as _;

use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use super::limits::Refused;
use crate::policy::Limits;
use crate::text;
use crate::tool::{ErrorCode, Failure};

/// The most that is kept of a message which holds the guest's own words.
const MAX_DETAIL: usize = 512;
/// The most frames of a guest's stack that go to the log.
const MAX_FRAMES: usize = 20;

/// Ends a call from within a host function, with this failure.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(crate) struct Stop(pub(crate) Failure);

/// What is known about a call that ended badly.
pub(super) struct Ended<'a> {
    /// `plugin/tool`.
    pub(super) subject: &'a str,
    pub(super) limits: &'a Limits,
    /// The last allocation that was refused, if any.
    pub(super) refused: Option<Refused>,
}

impl Ended<'_> {
    /// Names why the guest ended. `error` is what wasmtime returned from instantiation or from the call.
    pub(super) fn failure(&self, error: &wasmtime::Error) -> Failure {
        if let Some(Stop(failure)) = error.downcast_ref() {
            return failure.clone();
        }
        if let Some(I32Exit(code)) = error.downcast_ref() {
            return self.exit(*code);
        }
        if let Some(trap) = error.downcast_ref::<Trap>() {
            return self.trap(*trap, error.is::<WasmBacktrace>());
        }
        if let Some(error) = error.downcast_ref::<ResourceTableError>() {
            return match error {
                ResourceTableError::Full => self.handles(),
                _ => self.misuse(&error.to_string()),
            };
        }
        if error.is::<PoolConcurrencyLimitError>() {
            return busy(self.subject);
        }
        self.untyped(error)
    }

    /// The deadline passed.
    pub(super) fn time(&self) -> Failure {
        let timeout = self.limits.timeout;
        Failure::new(ErrorCode::LIMIT_TIME, format!("`{}` did not end within `timeout` = {timeout:?}", self.subject))
            .hint("ask for less work, or raise `timeout` in the policy's limits")
    }

    fn fuel(&self) -> Failure {
        Failure::new(ErrorCode::LIMIT_FUEL, format!("`{}` used up `fuel` = {}", self.subject, self.limits.fuel))
            .hint("ask for less work, or raise `fuel` in the policy's limits")
    }

    fn handles(&self) -> Failure {
        Failure::new(ErrorCode::LIMIT_HANDLES, format!("`{}` opened more than `handles` = {}", self.subject, self.limits.handles))
            .hint("the plugin must close what it opens; or raise `handles` in the policy's limits")
    }

    fn memory(&self, refused: Refused) -> Failure {
        let (wanted, field, limit) = match refused {
            Refused::Memory(wanted) => (format!("{wanted} bytes of memory"), "memory", self.limits.memory),
            Refused::TableElements(wanted) => (format!("{wanted} table elements"), "table_elements", self.limits.table_elements),
        };
        Failure::new(ErrorCode::LIMIT_MEMORY, format!("`{}` needs {wanted}, over `{field}` = {limit}", self.subject))
            .hint(format!("ask for less work, or raise `{field}` in the policy's limits"))
    }

    fn exit(&self, code: i32) -> Failure {
        if code != 0
            && let Some(refused) = self.refused
        {
            return self.memory(refused);
        }
        Failure::new(
            ErrorCode::PLUGIN_EXIT,
            format!("`{}` ended itself with exit code {code} instead of answering", self.subject),
        )
        .hint("a tool answers by returning; this is a fault of the plugin")
    }

    fn trap(&self, trap: Trap, in_guest: bool) -> Failure {
        match trap {
            Trap::OutOfFuel => return self.fuel(),
            // How an allocator gives up: Rust and C++ abort, other languages use the null pointer.
            Trap::UnreachableCodeReached | Trap::MemoryOutOfBounds => {
                if let Some(refused) = self.refused {
                    return self.memory(refused);
                }
            }
            // Without a guest frame on the stack, it is the host that read the result.
            Trap::InvalidChar
            | Trap::InvalidDiscriminant
            | Trap::StringOutOfBounds
            | Trap::ListOutOfBounds
            | Trap::UnalignedPointer
                if !in_guest =>
            {
                return self.invalid_result(&trap.to_string());
            }
            _ => {}
        }
        let text = trap.to_string();
        let reason = text.strip_prefix("wasm trap: ").unwrap_or(&text);
        Failure::new(ErrorCode::trap(&snake_case(&format!("{trap:?}"))), format!("`{}` trapped: {reason}", self.subject))
            .hint("this is a fault of the plugin, not of the arguments' form")
    }

    /// wasmtime gives these errors no type of their own. Its wording is pinned by tests.
    fn untyped(&self, error: &wasmtime::Error) -> Failure {
        let text = format!("{:#}", error.root_cause());
        if text.contains("fuel allocated for hostcalls has been exhausted") {
            let limit = self.limits.hostcall_bytes;
            let message = format!("`{}` passed more than `hostcall_bytes` = {limit} at once", self.subject);
            return Failure::new(ErrorCode::LIMIT_HOSTCALL, message)
                .hint("ask for a smaller result, or raise `hostcall_bytes` in the policy's limits");
        }
        if text.contains("store handle limit exceeded") {
            return self.handles();
        }
        if text.contains("resource limit exceeded") {
            let limit = self.limits.instances;
            let message = format!("`{}` has more instances, memories or tables than `instances` = {limit}", self.subject);
            return Failure::new(ErrorCode::LIMIT_MEMORY, message).hint("raise `instances` in the policy's limits");
        }
        if let Some(refused) = self.refused
            && (text.contains("exceeds memory limits") || text.contains("exceeds table limits"))
        {
            return self.memory(refused);
        }
        if text.starts_with("realloc return") || error.is::<WasmBacktrace>() {
            return self.misuse(&text);
        }
        self.invalid_result(&text)
    }

    /// A call of a host function, or an answer to one, that breaks the canonical ABI or the function's contract.
    fn misuse(&self, detail: &str) -> Failure {
        let detail = text::clean_line(detail, MAX_DETAIL);
        Failure::new(ErrorCode::trap("invalid_call"), format!("`{}` misused a host function: {detail}", self.subject))
            .hint("this is a fault of the plugin")
    }

    /// A result that is not what its type says.
    pub(super) fn invalid_result(&self, detail: &str) -> Failure {
        let detail = text::clean_line(detail, MAX_DETAIL);
        Failure::new(ErrorCode::RESULT_INVALID, format!("`{}` returned something malformed: {detail}", self.subject))
            .hint("this is a fault of the plugin")
    }
}

/// No slot became free in time.
pub(super) fn busy(subject: &str) -> Failure {
    Failure::new(ErrorCode::LIMIT_BUSY, format!("`{subject}` found no free slot to run in"))
        .hint("try again later, or raise `concurrency` in the policy's limits")
}

/// The caller no longer wants the result.
pub(super) fn cancelled(subject: &str) -> Failure {
    Failure::new(ErrorCode::CALL_CANCELLED, format!("`{subject}` was stopped before it ended"))
}

/// A host function panicked, or the runtime went away.
pub(super) fn internal(subject: &str) -> Failure {
    Failure::new(ErrorCode::HOST_INTERNAL, format!("the host failed while `{subject}` ran"))
        .hint("the host's log says more; please report it")
}

/// The guest's stack, for the log: its names are the guest's words, so they are cleaned and cut.
pub(super) fn stack(error: &wasmtime::Error) -> Option<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>()?;
    let mut text = String::new();
    for frame in backtrace.frames().iter().take(MAX_FRAMES) {
        let name = frame.func_name().map_or_else(|| format!("function {}", frame.func_index()), ToOwned::to_owned);
        let _ = writeln!(text, "  at {}", text::clean_line(&name, 120));
    }
    Some(text)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 8);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_of(error: &wasmtime::Error, refused: Option<Refused>) -> Failure {
        Ended { subject: "demo/run", limits: &Limits::default(), refused }.failure(error)
    }

    #[test]
    fn names_every_end() {
        for (error, refused, code) in [
            (Trap::OutOfFuel.into(), None, "limit.fuel"),
            (Trap::StackOverflow.into(), None, "trap.stack_overflow"),
            (Trap::IntegerDivisionByZero.into(), None, "trap.integer_division_by_zero"),
            (Trap::UnreachableCodeReached.into(), None, "trap.unreachable_code_reached"),
            (Trap::UnreachableCodeReached.into(), Some(Refused::Memory(1)), "limit.memory"),
            (Trap::IntegerDivisionByZero.into(), Some(Refused::Memory(1)), "trap.integer_division_by_zero"),
            (Trap::InvalidChar.into(), None, "result.invalid"),
            (wasmtime::Error::from(I32Exit(0)), None, "plugin.exit"),
            (wasmtime::Error::from(I32Exit(3)), Some(Refused::TableElements(1)), "limit.memory"),
            (wasmtime::Error::from(ResourceTableError::Full), None, "limit.handles"),
            (wasmtime::Error::from(ResourceTableError::NotPresent), None, "trap.invalid_call"),
            (Stop(Failure::new(ErrorCode::CAP_DENIED, "no")).into(), None, "cap.denied"),
            (wasmtime::Error::msg("invalid utf-8 sequence"), None, "result.invalid"),
            (wasmtime::Error::msg("realloc return: result not aligned"), None, "trap.invalid_call"),
        ] {
            assert_eq!(failure_of(&error, refused).code.as_str(), code);
        }
    }

    #[test]
    fn says_which_field_of_the_policy_it_was() {
        let failure = failure_of(&Trap::OutOfFuel.into(), None);
        assert_eq!(failure.message, "`demo/run` used up `fuel` = 1000000000");
        let failure = failure_of(&Trap::UnreachableCodeReached.into(), Some(Refused::Memory(200 << 20)));
        assert_eq!(failure.message, "`demo/run` needs 209715200 bytes of memory, over `memory` = 134217728");
        assert!(failure.hint.is_some_and(|hint| hint.contains("`memory`")));
    }

    #[test]
    fn cleans_the_guests_words() {
        let failure = failure_of(&wasmtime::Error::msg("bad \u{1b}[31m\u{202e}name\n"), None);
        assert!(!failure.message.chars().any(text::is_hidden) && !failure.message.contains('\n'), "{}", failure.message);
    }
}
