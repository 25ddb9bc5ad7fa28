//! The fuzzers' entry points, over their seeds and over files made of the seeds' pieces.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use honeycomb_host::agent::{fuzz_arguments, fuzz_normalise};
use honeycomb_host::provider::decode::fuzz_decode;
use honeycomb_host::provider::sse::fuzz_any_chunking;
use honeycomb_tests::host::workspace;

type Target = fn(&[u8]);

/// The targets whose seeds are files.
const TARGETS: [(&str, Target); 4] =
    [("sse", fuzz_any_chunking), ("decode", fuzz_decode), ("arguments", fuzz_arguments), ("normalise", fuzz_normalise)];

/// Mutated files a target, unless `HONEYCOMB_FUZZ_FILES` says more.
const FILES: u64 = 500;

fn seeds(target: &str) -> BTreeMap<String, Vec<u8>> {
    let directory = workspace().join("fuzz/seeds").join(target);
    let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    files
        .map(|file| {
            let path = file.expect("listed").path();
            (path.file_name().expect("a name").to_string_lossy().into_owned(), std::fs::read(&path).expect("read"))
        })
        .collect()
}

fn feed(target: Target, name: &str, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
    assert!(outcome.is_ok(), "{name}: {}\nas bytes: {input:?}", String::from_utf8_lossy(input));
}

#[test]
fn every_seed_passes() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= 10, "{name} has {} seeds", seeds.len());
        for (seed, input) in &seeds {
            feed(target, &format!("{name}/{seed}"), input);
            for end in (0..input.len()).step_by(1 + input.len() / 200) {
                feed(target, &format!("{name}/{seed}, cut at {end}"), &input[..end]);
            }
        }
    }
}

#[test]
fn seeds_that_look_like_conversations_are_conversations() {
    for (name, seed) in seeds("normalise").into_iter().filter(|(_, seed)| seed.starts_with(b"[")) {
        serde_json::from_slice::<Vec<honeycomb_host::message::Message>>(&seed).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn files_made_of_the_seeds_pieces_pass() {
    let files = std::env::var("HONEYCOMB_FUZZ_FILES").map_or(FILES, |text| text.parse().expect("a number"));
    for (name, target) in TARGETS {
        let seeds: Vec<Vec<u8>> = seeds(name).into_values().collect();
        // The same files each time: a failure can be looked at again.
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        for _ in 0..files {
            feed(target, name, &mutated(&seeds, &mut chance));
        }
    }
}

/// A file that begins like one seed, goes on like another, and has some bytes changed.
fn mutated(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    let mut file = Vec::new();
    for _ in 0..1 + chance.below(3) {
        let seed = &seeds[chance.below(seeds.len())];
        let start = if chance.below(2) == 0 { 0 } else { chance.below(seed.len() + 1) };
        let end = start + chance.below(seed.len() - start + 1);
        file.extend_from_slice(&seed[start..end]);
    }
    for _ in 0..chance.below(4) {
        let at = chance.below(file.len() + 1);
        match chance.below(3) {
            0 => file.insert(at, chance.byte()),
            1 if at < file.len() => file[at] ^= 1 << chance.below(8),
            _ if at < file.len() => drop(file.remove(at)),
            _ => {}
        }
    }
    file
}

/// Marsaglia's xorshift64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}
