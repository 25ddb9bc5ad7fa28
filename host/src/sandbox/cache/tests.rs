use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;
use tempfile::TempDir;

use super::super::config::{AddressSpace, EngineRole, engine_config};
use super::*;

const LIMIT: u64 = 1024 * 1024;

fn engine(space: AddressSpace) -> Engine {
    Engine::new(&engine_config(EngineRole::Serve, space)).expect("an engine")
}

fn open(path: &Path) -> Cache {
    Cache::open(path, &engine(AddressSpace::Large), LIMIT).expect("a cache")
}

/// A real artifact, in a fresh cache.
fn filled() -> (TempDir, Cache, EntryKey, PathBuf) {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("a/cache");
    let cache = open(&path);
    let compiler = Engine::new(&engine_config(EngineRole::Compile, AddressSpace::Large)).expect("an engine");
    let wasm = wat::parse_str(r#"(component (core module (func (export "run"))))"#).expect("valid text");
    let artifact = compiler.precompile_component(&wasm).expect("compiled");
    let key = cache.key(&[7; 32]);
    cache.put(key, &artifact);
    let entry = path.join(key.file_name());
    (parent, cache, key, entry)
}

fn rewrite(entry: &Path, bytes: &[u8]) {
    std::fs::remove_file(entry).expect("removed");
    std::fs::write(entry, bytes).expect("written");
    std::fs::set_permissions(entry, PermissionsExt::from_mode(0o400)).expect("changed");
}

fn verdict(cache: &Cache, key: EntryKey) -> String {
    cache.get(key).map_or_else(|error| error.to_string(), |_| "good".to_owned())
}

#[test]
fn gives_back_what_was_filed_and_it_runs() {
    let (_dir, cache, key, entry) = filled();
    let component = cache.get(key).expect("found").into_component(&engine(AddressSpace::Large));
    assert!(component.is_ok(), "{:?}", component.err());
    let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
    let dir = entry.parent().expect("a parent");
    assert_eq!((mode(dir), mode(&entry), mode(&dir.join(KEY_FILE))), (0o700, 0o400, 0o600));
    assert_eq!(std::fs::read_dir(dir).expect("listed").count(), 2, "only the key and the entry");
    // Another process, or the next start.
    assert_eq!(verdict(&open(dir), key), "good");
}

#[test]
fn notices_a_flipped_bit_anywhere() {
    let (_dir, cache, key, entry) = filled();
    let good = std::fs::read(&entry).expect("read");
    let step = (good.len() / 200).max(1);
    let last = good.len() - 64..good.len();
    for at in (0..good.len()).step_by(step).chain(last) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        rewrite(&entry, &bad);
        assert_eq!(verdict(&cache, key), "the entry is damaged or foreign", "byte {at}");
    }
    for bad in [&good[..good.len() - 1], &good[1..], &good[..48], &good[..10], &[], &[&good[..], &[0]].concat()[..]] {
        rewrite(&entry, bad);
        assert_eq!(verdict(&cache, key), "the entry is damaged or foreign", "{} bytes", bad.len());
    }
    rewrite(&entry, &good);
    assert_eq!(verdict(&cache, key), "good");
}

#[test]
fn one_valid_entry_cannot_stand_in_for_another() {
    let (_dir, cache, key, entry) = filled();
    let other = cache.key(&[8; 32]);
    std::fs::rename(&entry, entry.with_file_name(other.file_name())).expect("renamed");
    assert_eq!(verdict(&cache, other), "the entry is damaged or foreign");
    assert_eq!(verdict(&cache, key), "no entry");
}

#[test]
fn another_key_or_engine_makes_every_entry_foreign() {
    let (_dir, _cache, key, entry) = filled();
    let dir = entry.parent().expect("a parent");
    let small = Cache::open(dir, &engine(AddressSpace::Small), LIMIT).expect("a cache");
    assert_ne!(small.key(&[7; 32]), key);
    // Even under the right name, an artifact for another engine is refused by wasmtime, not run.
    let artifact = small.get(key).expect("the tag is right");
    assert!(artifact.into_component(&engine(AddressSpace::Small)).is_err());

    for spoil in [
        |key: &Path| std::fs::set_permissions(key, PermissionsExt::from_mode(0o644)).expect("changed"),
        |key: &Path| std::fs::write(key, [0; 31]).expect("written"),
        |key: &Path| std::fs::remove_file(key).expect("removed"),
    ] {
        let (_dir, _cache, key, entry) = filled();
        spoil(&entry.with_file_name(KEY_FILE));
        assert_eq!(verdict(&open(entry.parent().expect("a parent")), key), "the entry is damaged or foreign");
    }
}

#[test]
fn takes_private_regular_files_only() {
    let (_dir, cache, key, entry) = filled();
    let spare = entry.with_file_name("spare");
    for mode in [0o440, 0o404, 0o600, 0o500] {
        std::fs::set_permissions(&entry, PermissionsExt::from_mode(mode)).expect("changed");
        assert_eq!(verdict(&cache, key), "the entry is not a private regular file", "{mode:o}");
    }
    std::fs::set_permissions(&entry, PermissionsExt::from_mode(0o400)).expect("changed");
    std::fs::hard_link(&entry, &spare).expect("linked");
    assert_eq!(verdict(&cache, key), "the entry is not a private regular file");
    std::fs::remove_file(&entry).expect("removed");
    symlink(&spare, &entry).expect("linked");
    assert_eq!(verdict(&cache, key), "the entry is not a private regular file");
}

#[test]
fn refuses_a_directory_that_others_can_write_to() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("changed");
    let error = Cache::open(dir.path(), &engine(AddressSpace::Large), LIMIT).err().expect("refused");
    assert!(error.to_string().contains("mode 777"), "{error}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    assert!(Cache::open(&file, &engine(AddressSpace::Large), LIMIT).is_err());
}

#[test]
fn removes_what_a_crashed_writer_left_and_nothing_else() {
    let (_dir, _cache, key, entry) = filled();
    let dir = entry.parent().expect("a parent");
    let (dead, alive) = (dir.join("x.1-1.tmp"), dir.join("x.2-1.tmp"));
    std::fs::write(&dead, "half").expect("written");
    std::fs::write(&alive, "half").expect("written");
    let writer = File::open(&alive).expect("opened");
    rustix::fs::flock(&writer, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("locked");
    let cache = open(dir);
    assert!(!dead.exists() && alive.exists());
    assert_eq!(verdict(&cache, key), "good");
}

#[test]
fn racing_writers_leave_one_key_and_whole_entries() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("cache");
    let engine = engine(AddressSpace::Large);
    let caches: Vec<Cache> = std::thread::scope(|scope| {
        let openers: Vec<_> = (0..8).map(|_| scope.spawn(|| Cache::open(&path, &engine, LIMIT).expect("a cache"))).collect();
        openers.into_iter().map(|opener| opener.join().expect("joined")).collect()
    });
    let key = caches[0].key(&[1; 32]);
    std::thread::scope(|scope| {
        for cache in &caches {
            scope.spawn(move || {
                for _ in 0..5 {
                    cache.put(key, &[9; 5_000]);
                    assert_eq!(verdict(cache, key), "good");
                }
            });
        }
    });
    assert_eq!(std::fs::read_dir(&path).expect("listed").count(), 2);
}

#[test]
fn only_a_right_tag_passes() {
    let mut hmac = Hmac::new(b"fuzz");
    hmac.update(b"artifact");
    let good = [&b"artifact"[..], &hmac.finish(), MAGIC].concat();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x80;
        fuzz_cache_entry(&bad);
    }
    fuzz_cache_entry(&good);
    fuzz_cache_entry(&[]);
}

proptest! {
    #[test]
    fn never_panics(bytes: Vec<u8>) {
        fuzz_cache_entry(&bytes);
        fuzz_cache_entry(&[&bytes[..], MAGIC].concat());
    }
}
