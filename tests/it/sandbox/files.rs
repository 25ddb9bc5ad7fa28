//! What a guest can open in a mount, and what it cannot.

use std::path::Path;
use std::time::{Duration, Instant};

use honeycomb_host::policy::{FsGrant, FsMode, Grants, Limits, RuleRef};
use honeycomb_host::sandbox::Bound;
use honeycomb_tests::guest::Guest;

use super::corpus::importing;
use super::fixture::{Fixture, call, code};

const FILES: &str = r#"
(import "wasi:filesystem/types@0.2.0" (instance $files
  (export "descriptor" (type $descriptor (sub resource)))
  (type $codes (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist" "file-too-large"
    "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop" "too-many-links" "message-size"
    "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory" "insufficient-space" "not-directory" "not-empty"
    "not-recoverable" "unsupported" "no-tty" "no-such-device" "overflow" "not-permitted" "pipe" "read-only" "invalid-seek"
    "text-file-busy" "cross-device"))
  (export "error-code" (type $error-code (eq $codes)))
  (type $path-flag (flags "symlink-follow"))
  (export "path-flags" (type $path-flags (eq $path-flag)))
  (type $open-flag (flags "create" "directory" "exclusive" "truncate"))
  (export "open-flags" (type $open-flags (eq $open-flag)))
  (type $descriptor-flag
    (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync" "mutate-directory"))
  (export "descriptor-flags" (type $descriptor-flags (eq $descriptor-flag)))
  (export "[method]descriptor.open-at" (func
    (param "self" (borrow $descriptor)) (param "path-flags" $path-flags) (param "path" string)
    (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
    (result (result (own $descriptor) (error $error-code)))))))
(alias export $files "descriptor" (type $descriptor))
(import "wasi:filesystem/preopens@0.2.0" (instance $preopens
  (alias outer 1 $descriptor (type $theirs))
  (export "descriptor" (type $ours (eq $theirs)))
  (export "get-directories" (func (result (list (tuple (own $ours) string)))))))"#;

const CREATE: u32 = 1;
const TRUNCATE: u32 = 8;
const READ: u32 = 1;
const WRITE: u32 = 2;

/// A guest that opens the path which is its tool's name, in its first mount.
fn opener(open_flags: u32, flags: u32) -> Guest {
    let functions = [
        ("directories", r#"(func $preopens "get-directories")"#, "(param i32)"),
        ("open", r#"(func $files "[method]descriptor.open-at")"#, "(param i32 i32 i32 i32 i32 i32 i32)"),
    ];
    let body = format!(
        "(call $directories (i32.const 1024))
         (if (i32.eqz (i32.load (i32.const 1028))) (then (return (call $error (i32.const 2) (i32.const 256) (i32.const 2)))))
         (call $open (i32.load (i32.load (i32.const 1024))) (i32.const 1) (local.get $name) (local.get $name_length)
           (i32.const {open_flags}) (i32.const {flags}) (i32.const 2048))
         (if (result i32) (i32.load8_u (i32.const 2048))
           (then (call $error (i32.const 5) (i32.const 256) (i32.const 2))) (else (call $ok)))"
    );
    importing(FILES, &functions, &body)
}

struct Mount {
    fixture: Fixture,
    directory: tempfile::TempDir,
}

impl Mount {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let inside = directory.path().join("mount");
        std::fs::create_dir(&inside).expect("a directory");
        std::fs::write(directory.path().join("secret"), "secret").expect("a file");
        std::fs::write(inside.join("文件.txt"), "text").expect("a file");
        std::os::unix::fs::symlink("../secret", inside.join("relative")).expect("a link");
        std::os::unix::fs::symlink("/etc/passwd", inside.join("absolute")).expect("a link");
        std::os::unix::fs::symlink("文件.txt", inside.join("good")).expect("a link");
        let pipe = inside.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        std::os::unix::net::UnixListener::bind(inside.join("socket")).expect("a socket");
        Self { fixture: Fixture::new(), directory }
    }

    fn inside(&self) -> std::path::PathBuf {
        self.directory.path().join("mount")
    }

    async fn bind(&self, guest: &Guest, host: &Path, mode: FsMode) -> Bound {
        let plugin = self.fixture.load(guest).await;
        let rule = RuleRef { file: "policy.toml".into(), line: 1 };
        let fs = vec![FsGrant { host: host.to_owned(), guest: "/data".to_owned(), mode, dangerous: false, rule }];
        let grants = Grants { fs, ..Grants::default() };
        self.fixture.sandbox.bind(&plugin, "files", grants, Limits::default()).expect("a bound plugin")
    }

    async fn open(&self, bound: &Bound, path: &str) -> String {
        let mut request = call();
        request.tool = path.to_owned();
        let outcome = self.fixture.sandbox.call(bound, request).await;
        code(&outcome).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_opens_what_is_in_its_mount_and_nothing_else() {
    let mount = Mount::new();
    let reader = mount.bind(&opener(0, READ), &mount.inside(), FsMode::ReadOnly).await;
    for (path, expected) in [
        ("文件.txt", "ok"),
        ("good", "ok"),
        ("./文件.txt", "ok"),
        ("missing", "tool.failed"),
        ("../secret", "cap.denied"),
        ("a/../../secret", "tool.failed"),
        ("./../secret", "cap.denied"),
        ("/etc/passwd", "cap.denied"),
        ("relative", "cap.denied"),
        ("absolute", "cap.denied"),
        ("pipe", "cap.denied"),
        ("socket", "cap.denied"),
        ("文件.txt\0", "tool.failed"),
        ("", "tool.failed"),
    ] {
        assert_eq!(mount.open(&reader, path).await, expected, "{path}");
    }
    let long = "a/".repeat(3000);
    assert_eq!(mount.open(&reader, &long).await, "tool.failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_mount_takes_no_change() {
    let mount = Mount::new();
    for (open_flags, flags) in [(CREATE, READ | WRITE), (0, WRITE), (TRUNCATE, READ), (CREATE, READ)] {
        let guest = opener(open_flags, flags);
        let bound = mount.bind(&guest, &mount.inside(), FsMode::ReadOnly).await;
        for path in ["new", "文件.txt"] {
            assert_eq!(mount.open(&bound, path).await, "cap.denied", "{path} {open_flags} {flags}");
        }
        let bound = mount.bind(&guest, &mount.inside(), FsMode::ReadWrite).await;
        assert_eq!(mount.open(&bound, "文件.txt").await, "ok");
    }
    let names: Vec<_> = std::fs::read_dir(mount.inside()).expect("the mount").flatten().map(|entry| entry.file_name()).collect();
    assert!(!names.contains(&"new".into()), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_in_a_mount_holds_up_nobody() {
    let mount = Mount::new();
    let bound = mount.bind(&opener(0, READ), &mount.inside(), FsMode::ReadOnly).await;
    let started = Instant::now();
    // More than the threads that tokio keeps for blocking work.
    for _ in 0..600 {
        assert_eq!(mount.open(&bound, "pipe").await, "cap.denied");
    }
    assert_eq!(mount.open(&bound, "good").await, "ok");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_is_the_directory_that_was_there_when_it_was_bound() {
    let mount = Mount::new();
    let link = mount.directory.path().join("link");
    std::os::unix::fs::symlink(mount.inside(), &link).expect("a link");
    let bound = mount.bind(&opener(0, READ), &link, FsMode::ReadOnly).await;
    std::fs::remove_file(&link).expect("the link");
    std::os::unix::fs::symlink(mount.directory.path(), &link).expect("a link");
    assert_eq!(mount.open(&bound, "secret").await, "tool.failed");
    assert_eq!(mount.open(&bound, "good").await, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_mounted_that_is_not_granted() {
    let fixture = Fixture::new();
    let bound = fixture.bind(&opener(0, READ), Limits::default()).await;
    // The guest answers `not-found` when it has no directory at all.
    assert_eq!(code(&fixture.call(&bound).await), "tool.not_found");
}
