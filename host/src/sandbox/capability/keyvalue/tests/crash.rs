use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use super::*;

/// Set for the child that [`what_was_set_is_there_after_kill_9`] starts: the file to write to.
const CHILD: &str = "HONEYCOMB_TEST_KV_FILE";

/// Does nothing, unless it is that child: then writes until it is killed, and says after each write that it is done.
#[tokio::test]
async fn writes_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let store = KeyValueStore::open(Some(path.as_ref())).expect("the parent's file");
    let notes = plugin("notes");
    for number in 0_u64.. {
        let value = number.to_string().into_bytes();
        store.set(&notes, "last".to_owned(), value, u64::MAX).await.expect("set");
        store.set(&notes, format!("key-{}", number % 100), vec![0; 1000], u64::MAX).await.expect("set");
        store.delete(&notes, format!("key-{}", (number + 50) % 100)).await.expect("deleted");
        #[expect(clippy::print_stdout, reason = "the parent reads it")]
        {
            println!("\ndone {number}");
        }
    }
}

#[test]
fn what_was_set_is_there_after_kill_9() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("kv.sqlite");
    let mut before = 0;
    for round in 0..5_u64 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "--nocapture", "sandbox::capability::keyvalue::tests::crash::writes_until_killed"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut done = lines.filter_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok());
        let acknowledged = done.nth(usize::try_from(50 + round * 37).expect("small")).expect("it writes");
        child.kill().expect("SIGKILL");
        child.wait().expect("dead");

        let mut connection = super::super::database::open(Some(&path)).expect("it opens again");
        let last = super::super::database::get(&mut connection, "notes", "last").expect("get").expect("set");
        let last: u64 = String::from_utf8(last).expect("digits").parse().expect("a number");
        assert!(last >= acknowledged, "{acknowledged} was acknowledged, {last} is there");
        let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("checked");
        assert_eq!(check, "ok");
        let sums = "SELECT (SELECT bytes FROM namespace), (SELECT sum(octet_length(key) + octet_length(value)) FROM entry)";
        let (counted, real): (i64, i64) = connection.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("sums");
        assert_eq!(counted, real);
        before += acknowledged;
    }
    assert!(before > 0);
}
