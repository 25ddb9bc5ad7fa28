//! Tests that measure their own process need it for themselves.

use std::process::Command;

/// Set in the process that a test runs alone in.
const MARK: &str = "HONEYCOMB_TEST_ALONE";

/// Runs the named test once more in a process of its own, unless this is that process. Returns whether the caller is to go on.
///
/// ```no_run
/// use honeycomb_tests::alone::alone;
///
/// fn memory_stays_flat() {
///     if !alone("module::memory_stays_flat") {
///         return;
///     }
///     // measures
/// }
/// ```
///
/// # Panics
///
/// Panics when the test fails there.
pub fn alone(name: &str) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let program = std::env::current_exe().expect("a test has a path");
    let output = Command::new(program).args(["--exact", name, "--nocapture"]).env(MARK, "1").output().expect("the test starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}, in a process of its own:\n{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{name} is not the name of a test:\n{stdout}");
    forward(&stdout);
    forward(&stderr);
    false
}

/// Hands on what the test printed, and not the lines of its runner.
fn forward(stdout: &str) {
    use std::io::Write as _;
    let mut out = std::io::stderr().lock();
    for line in stdout.lines().filter(|line| !line.is_empty() && !line.starts_with("test ") && !line.starts_with("running ")) {
        let _ = writeln!(out, "{line}");
    }
}
