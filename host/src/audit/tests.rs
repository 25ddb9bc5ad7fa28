use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::secret::Redactor;

/// A file with this many records after the first.
fn written(records: usize) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("audit.jsonl");
    let audit = Audit::open(&path, false).expect("opened");
    for number in 0..records {
        audit.append(&record(number)).expect("appended");
    }
    (directory, path)
}

fn record(number: usize) -> Record {
    let mut record = Record { kind: Kind::Started, call: Some(format!("call-{number}")), ..Record::default() };
    record.set_arguments_text(&format!("{{\"城市\":\"北京\",\"n\":{number}}}"), &Redactor::default());
    record
}

fn check(path: &Path) -> Result<Report, Fault> {
    verify(path, &mut |_| ()).expect("readable")
}

fn line_of(bytes: &[u8], offset: usize) -> u64 {
    1 + bytes[..offset].iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn a_chain_that_nobody_touched_holds() {
    let (_directory, path) = written(3);
    let report = check(&path).expect("whole");
    assert_eq!((report.records, report.recovered.len()), (4, 0));
    assert!(report.chain.is_some_and(|chain| chain.len() == 32));
    let text = fs::read_to_string(&path).expect("text");
    assert!(text.ends_with(&format!("\"hash\":\"{}\"}}\n", report.last_hash)));
    // Opened again, the chain goes on.
    Audit::open(&path, true).expect("opened").append(&record(9)).expect("appended");
    assert_eq!(check(&path).expect("whole").records, 5);
    let mut calls = Vec::new();
    assert_eq!(read(&path, &mut |line| calls.extend(line.record.call)).expect("readable"), 0);
    assert_eq!(calls, ["call-0", "call-1", "call-2", "call-9"]);
}

#[test]
fn any_changed_byte_is_found_and_its_line_named() {
    let (_directory, path) = written(2);
    let whole = fs::read(&path).expect("read");
    for offset in 0..whole.len() {
        for change in [1, whole[offset] ^ b'\n'] {
            if change == 0 {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[offset] ^= change;
            fs::write(&path, &bytes).expect("written");
            let fault = check(&path).expect_err("found");
            assert_eq!(fault.line, line_of(&whole, offset), "offset {offset}, change {change}: {fault}");
        }
    }
}

#[test]
fn lines_that_are_dropped_repeated_or_swapped_are_found_and_the_first_wrong_one_named() {
    let (_directory, path) = written(5);
    let whole = fs::read(&path).expect("read");
    let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
    let found = |lines: &[&[u8]]| {
        fs::write(&path, lines.concat()).expect("written");
        check(&path).map_err(|fault| fault.line)
    };
    for index in 0..lines.len() {
        let mut dropped = lines.clone();
        dropped.remove(index);
        // The last line is the one that a chain cannot miss.
        let expected = if index + 1 < lines.len() { Err(index as u64 + 1) } else { Ok(()) };
        assert_eq!(found(&dropped).map(|_| ()), expected, "dropped {index}");
        let mut repeated = lines.clone();
        repeated.insert(index, lines[index]);
        assert_eq!(found(&repeated).map(|_| ()), Err(index as u64 + 2), "repeated {index}");
        for other in index + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(index, other);
            assert_eq!(found(&swapped).map(|_| ()), Err(index as u64 + 1), "swapped {index} and {other}");
        }
    }
}

#[test]
fn a_line_that_was_changed_and_hashed_anew_breaks_the_next() {
    let (_directory, path) = written(3);
    let text = fs::read_to_string(&path).expect("text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let whole = line::read_plain(lines[1].as_bytes()).expect("whole");
    let (forged, _) = line::write(1, &whole.content.prev, whole.content.time, &record(7));
    lines[1] = forged;
    fs::write(&path, lines.join("\n") + "\n").expect("written");
    assert_eq!(check(&path).expect_err("found").line, 3);
}

#[test]
fn a_last_line_torn_at_any_byte_is_closed_at_the_next_start() {
    let (_directory, path) = written(2);
    let whole = fs::read(&path).expect("read");
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    for end in last + 1..whole.len() {
        fs::write(&path, &whole[..end]).expect("written");
        let complete = end + 1 == whole.len();
        match check(&path) {
            Err(fault) => assert!(!complete && fault.line == 3 && fault.problem.contains("torn"), "{end}: {fault}"),
            Ok(report) => assert!(complete && report.records == 3, "{end}"),
        }
        Audit::open(&path, false).expect("opened").append(&record(9)).expect("appended");
        let report = check(&path).unwrap_or_else(|fault| panic!("{end}: {fault}"));
        // The torn record is lost and another tells of it; one that lacked its newline alone is kept.
        assert_eq!((report.records, report.recovered.as_slice()), (4, if complete { &[][..] } else { &[3][..] }), "{end}");
    }
    // The closed line is as safe from changes as any other.
    fs::write(&path, &whole[..last + 40]).expect("written");
    drop(Audit::open(&path, false).expect("opened"));
    let closed = fs::read(&path).expect("read");
    for offset in last..closed.len() {
        let mut bytes = closed.clone();
        bytes[offset] ^= 1;
        fs::write(&path, &bytes).expect("written");
        assert_eq!(check(&path).expect_err("found").line, 3, "offset {offset}");
    }
}

#[test]
fn a_first_line_torn_at_any_byte_and_a_torn_repair_are_closed_too() {
    let (_directory, path) = written(0);
    let whole = fs::read(&path).expect("read");
    for end in 1..whole.len() {
        fs::write(&path, &whole[..end]).expect("written");
        drop(Audit::open(&path, false).expect("opened"));
        let repaired = fs::read(&path).expect("read");
        assert_eq!(check(&path).unwrap_or_else(|fault| panic!("{end}: {fault}")).records, 1);
        // Killed once more, while it wrote that.
        for again in (end..repaired.len()).step_by(7) {
            fs::write(&path, &repaired[..again]).expect("written");
            drop(Audit::open(&path, false).unwrap_or_else(|error| panic!("{end}, {again}: {error}")));
            assert_eq!(check(&path).unwrap_or_else(|fault| panic!("{end}, {again}: {fault}")).records, 1);
        }
    }
}

#[test]
fn refuses_a_file_that_is_something_else_or_whose_end_was_changed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notes.txt");
    for text in ["notes\n", "notes", "{}\n", "{\"seq\":1}\n", "\n"] {
        fs::write(&path, text).expect("written");
        assert!(matches!(Audit::open(&path, false), Err(AuditError::Damaged { .. })), "{text:?}");
        assert_eq!(fs::read_to_string(&path).expect("text"), text, "nothing was added");
    }
    for path in ["/dev/full", "/dev/null", "/"] {
        assert!(matches!(Audit::open(Path::new(path), false), Err(AuditError::NotAFile { .. })), "{path}");
    }
    let (_directory, path) = written(3);
    let mut bytes = fs::read(&path).expect("read");
    let near_the_end = bytes.len() - 100;
    bytes[near_the_end] ^= 1;
    fs::write(&path, &bytes).expect("written");
    assert!(matches!(Audit::open(&path, false), Err(AuditError::Damaged { .. })));
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_directory, path) = written(0);
    assert_eq!(fs::metadata(path).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_is_changed_in_use_takes_no_more_records() {
    let (_directory, path) = written(2);
    let audit = Audit::open(&path, false).expect("opened");
    let whole = fs::read(&path).expect("read");
    fs::write(&path, &whole[..whole.len() - 5]).expect("cut");
    assert!(matches!(audit.append(&record(9)), Err(AuditError::Shortened { .. })));
    fs::write(&path, [&whole[..], b"{}\n"].concat()).expect("added to");
    assert!(matches!(audit.append(&record(9)), Err(AuditError::Damaged { .. })));
    fs::write(&path, &whole).expect("restored");
    audit.append(&record(9)).expect("appended");
    fs::remove_file(&path).expect("removed");
    assert!(matches!(audit.append(&record(9)), Err(AuditError::Shortened { .. })));
}

#[test]
fn a_record_that_was_written_in_part_is_closed_by_the_next() {
    let (_directory, path) = written(1);
    let audit = Audit::open(&path, false).expect("opened");
    // What a full disk leaves of a write.
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("opened");
    file.write_all(b"{\"seq\":2,\"prev\":\"00").expect("written");
    audit.append(&record(2)).expect("appended");
    let report = check(&path).expect("whole");
    assert_eq!((report.records, report.recovered), (4, vec![3]));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_every_record() {
    let (_directory, path) = written(1);
    let read_only = fs::File::open(&path).expect("opened");
    let mut file = AuditFile::over(read_only, &path, false).expect("nothing to write yet");
    for _ in 0..2 {
        assert!(matches!(file.append(&record(2)), Err(AuditError::Write { .. })));
    }
    assert_eq!(check(&path).expect("whole").records, 2);
}

#[test]
fn many_writers_make_one_chain() {
    let (_directory, path) = written(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // Each opens the file for itself, as a process would.
            let path = &path;
            scope.spawn(move || {
                let audit = Audit::open(path, false).expect("opened");
                for number in 0..50 {
                    audit.append(&record(number)).expect("appended");
                }
            });
        }
    });
    assert_eq!(check(&path).expect("whole").records, 201);
}

#[test]
fn a_file_larger_than_what_is_read_at_the_start_goes_on() {
    let (_directory, path) = written(0);
    let audit = Audit::open(&path, false).expect("opened");
    let mut long = record(1);
    long.error = Some(crate::tool::Failure::new(crate::tool::ErrorCode::HOST_INTERNAL, "天".repeat(10_000)));
    for _ in 0..30 {
        audit.append(&long).expect("appended");
    }
    let mut file = fs::OpenOptions::new().append(true).open(&path).expect("opened");
    file.write_all(b"{\"seq\":31,").expect("torn");
    Audit::open(&path, false).expect("opened").append(&record(2)).expect("appended");
    assert_eq!(check(&path).expect("whole").records, 33);
}

#[test]
fn long_arguments_are_a_digest_a_size_and_a_beginning() {
    let mut record = Record::default();
    let redactor = Redactor::new(["hunter2hunter2"]);
    // The secret lies across the place where the text is cut.
    let text = format!("{}hunter2hunter2{}", "x".repeat(495), "y".repeat(5_000));
    record.set_arguments_text(&serde_json::json!({ "t": text }).to_string(), &redactor);
    let arguments = record.arguments.expect("arguments");
    assert!(arguments["bytes"].as_u64().is_some_and(|bytes| bytes > 5_000));
    assert_eq!(arguments["sha256"].as_str().map(str::len), Some(64));
    let shown = arguments.to_string();
    assert!(shown.len() < 1_000 && !shown.contains("hunter"), "{shown}");
    // Not JSON at all.
    let mut record = Record::default();
    record.set_arguments_text("not json hunter2hunter2", &redactor);
    assert_eq!(record.arguments, Some("not json [secret]".into()));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), newline in any::<bool>()) {
        let (_directory, path) = written(1);
        let mut file = fs::OpenOptions::new().append(true).open(&path).expect("opened");
        file.write_all(&bytes).expect("written");
        if newline {
            file.write_all(b"\n").expect("written");
        }
        let untouched = bytes.is_empty() && !newline;
        prop_assert_eq!(check(&path).is_ok(), untouched);
        let mut lines = 0;
        read(&path, &mut |_| lines += 1).expect("readable");
        prop_assert_eq!(lines, 2);
        let torn = !newline && !bytes.contains(&b'\n');
        prop_assert_eq!(Audit::open(&path, false).is_ok(), torn);
    }

    #[test]
    fn a_line_reads_back_as_it_was_written(name in ".*", seq in any::<u64>()) {
        let record = Record { kind: Kind::Refused, tool: Some(name), ..Record::default() };
        let (text, hash) = line::write(seq, line::NO_HASH, "2026-11-30T00:00:00.000Z".to_owned(), &record);
        let whole = line::read(text.as_bytes()).expect("whole");
        prop_assert_eq!(whole.hash, hash);
        prop_assert_eq!((whole.content.seq, whole.content.record), (seq, record));
    }
}
