//! The compile child by itself: limited before it reads, and gone when its parent is.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{bombs, host_program};

fn start() -> Child {
    Command::new(host_program())
        .args(["__compile", "268435456", "25", "33554432", "large"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

fn wait_until<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn limits_itself_before_it_reads_a_byte() {
    let mut child = start();
    let path = format!("/proc/{}/limits", child.id());
    // The last limit that it sets.
    let limits = wait_until("the limits", || std::fs::read_to_string(&path).ok().filter(|limits| limits.contains("268435456")));
    for (name, soft, hard) in [
        ("Max cpu time", "25", "26"),
        ("Max file size", "0", "0"),
        ("Max core file size", "0", "0"),
        ("Max open files", "16", "16"),
        ("Max address space", "268435456", "268435456"),
    ] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no `{name}` in {limits}"));
        let numbers: Vec<&str> = line.split_whitespace().take(2).collect();
        assert_eq!(numbers, [soft, hard], "{name}");
    }
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

#[test]
fn ends_when_its_parent_does() {
    let mut child = start();
    let bomb = bombs::many_functions();
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(&u64::try_from(bomb.len()).expect("a length").to_le_bytes()).expect("written");
    stdin.write_all(&bomb).expect("written");
    assert_eq!(child.try_wait().expect("asked"), None);
    // What the system does when the parent is gone.
    drop(stdin);
    let status = wait_until("the end", || child.try_wait().expect("asked"));
    assert_eq!(status.signal(), Some(9), "{status}");
}

#[test]
fn refuses_to_be_called_by_people() {
    let output = Command::new(host_program()).arg("__compile").output().expect("run");
    assert_eq!(output.status.code(), Some(13));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "this command is for the host's own use");
}
