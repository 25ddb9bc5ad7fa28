//! What a passing test has to tell whoever runs the suite.

use std::io::Write as _;

/// Writes a line past the test harness, which shows what passing tests print only with `--nocapture`: counts, measurements and skips
/// are news either way.
pub fn tell(line: &str) {
    // One write, so that tests running side by side do not mix their lines.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Says that a test was skipped, and why.
///
/// # Panics
///
/// Panics where `CI` is set: a suite that decides on a change must not skip silently.
pub fn skipped(test: &str, reason: &str) {
    tell(&format!("SKIPPED {test}: {reason}"));
    assert!(std::env::var_os("CI").is_none(), "{test} must not be skipped where `CI` is set: {reason}");
}
