//! What a passing test has to tell whoever runs the suite.

use std::io::Write as _;

/// Writes a line past the test harness, which shows what passing tests print only with `--nocapture`: counts, measurements and skips
/// are news either way.
pub fn tell(line: &str) {
    // One write, so that tests running side by side do not mix their lines.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}
