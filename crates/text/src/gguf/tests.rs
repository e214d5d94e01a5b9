//! Round trips, and malformed files.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// Every value type, three kinds of tensors, one of an unknown type.
fn sample() -> Writer {
    Writer::new()
        .meta("general.architecture", "test")
        .meta("a.u8", 200u8)
        .meta("a.i8", -3i8)
        .meta("a.u16", 60_000u16)
        .meta("a.i16", -300i16)
        .meta("a.u32", 7u32)
        .meta("a.i32", -7i32)
        .meta("a.f32", 0.5f32)
        .meta("a.bool", true)
        .meta("a.u64", u64::MAX)
        .meta("a.i64", i64::MIN)
        .meta("a.f64", 0.25f64)
        .meta("list.str", ["a", "", "Ġé"].into_iter().collect::<Strings>())
        .meta("list.i32", vec![1i32, 2, 3])
        .meta("list.f32", vec![1f32, -2.0])
        .meta("list.bool", vec![true, false])
        .meta("list.empty", Vec::<u64>::new())
        .meta(
            "list.nested",
            Array::Array(vec![
                Array::U8(vec![1, 2]),
                Array::Array(vec![Array::String(["x"].into_iter().collect())]),
            ]),
        )
        .tensor("f", &[3, 2], TensorType::F32, vec![1u8; 24])
        .tensor("odd", &[5], TensorType(97), vec![7u8; 40])
        .tensor("q", &[32, 1, 2], TensorType::Q8_0, vec![2u8; 68])
        .tensor("scalar", &[], TensorType::F32, vec![3u8; 4])
        .tensor("none", &[0, 4], TensorType::F16, Vec::new())
}

fn parse(bytes: Vec<u8>) -> Result<Gguf, GgufError> {
    Gguf::from_vec("test.gguf", bytes)
}

#[test]
fn round_trip() {
    for (version, alignment) in [(1, 32), (2, 32), (3, 32), (3, 1), (3, 8), (2, 4096)] {
        let writer = sample().version(version).meta("general.alignment", alignment);
        let bytes = writer.bytes().unwrap();
        let gguf = parse(bytes.clone()).unwrap();
        assert_eq!(Writer::copy_of(&gguf).version(version).bytes().unwrap(), bytes);
        assert_eq!(gguf.file_bytes(), bytes.len() as u64);

        let names: Vec<_> =
            gguf.tensors().map(|t| (t.name.as_str(), t.shape.clone(), t.kind.name())).collect();
        assert_eq!(names[0], ("f", vec![3, 2], "F32".to_owned()));
        assert_eq!(names[1], ("odd", vec![5], "type 97".to_owned()));
        let q = gguf.tensor("q").unwrap();
        assert_eq!(q.values(), 64);
        assert_eq!(&gguf.data(q)[..], &[2u8; 68]);
        // Up to the next tensor, including the padding.
        let odd = gguf.data(gguf.tensor("odd").unwrap());
        assert_eq!(&odd[..40], &[7u8; 40]);
        assert_eq!(odd.len() as u64, 40u64.next_multiple_of(alignment as u64));
        assert_eq!(gguf.data(gguf.tensor("none").unwrap()).len(), 0);
        assert!(gguf.tensor("absent").is_none());
    }
}

#[test]
fn getters_widen_and_name_what_is_wrong() {
    let gguf = parse(sample().bytes().unwrap()).unwrap();
    let m = gguf.metadata();
    assert_eq!(m.u64("a.u8").unwrap(), Some(200));
    assert_eq!(m.u64("a.u64").unwrap(), Some(u64::MAX));
    assert_eq!(m.f32("a.f64").unwrap(), Some(0.25));
    assert_eq!(m.f32("a.u32").unwrap(), Some(7.0));
    assert_eq!(m.bool("a.bool").unwrap(), Some(true));
    assert_eq!(m.str("general.architecture").unwrap(), Some("test"));
    assert_eq!(m.u64("absent").unwrap(), None);
    assert_eq!(m.u64s("list.i32").unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(m.f32s("list.f32").unwrap(), Some(vec![1.0, -2.0]));
    assert_eq!(m.bools("list.bool").unwrap(), Some(vec![true, false]));
    let strings = m.strings("list.str").unwrap().unwrap();
    assert_eq!(strings.iter().collect::<Vec<_>>(), ["a", "", "Ġé"]);
    assert_eq!((strings.get(2), strings.get(3)), (Some("Ġé"), None));

    let check = |error: GgufError, expected: &str| assert_eq!(error.to_string(), expected);
    check(m.u64("a.i8").unwrap_err(), "test.gguf: metadata key a.i8 is the i8 -3, expected a whole number");
    check(
        m.u32("a.u64").unwrap_err(),
        "test.gguf: metadata key a.u64 is the u64 18446744073709551615, expected a whole number below 2^32",
    );
    check(
        m.strings("list.i32").unwrap_err(),
        "test.gguf: metadata key list.i32 is an array of i32, expected an array of strings",
    );
    check(m.missing("llama.block_count"), "test.gguf has no metadata key llama.block_count");
}

/// A handwritten header: magic, version 3, counts, then `rest`.
fn header(tensors: u64, keys: u64, rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(keys.to_le_bytes());
    bytes.extend(rest.concat());
    bytes
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

#[test]
fn files_that_lie() {
    fn check(bytes: impl Into<Vec<u8>>, expected: &str) {
        assert_eq!(parse(bytes.into()).err().map(|e| e.to_string()).as_deref(), Some(expected));
    }
    let key = |name: &str, kind: u32, value: &[u8]| [&text(name)[..], &kind.to_le_bytes(), value].concat();
    let tensor = |name: &str, shape: &[u64], kind: u32, offset: u64| {
        let mut row = text(name);
        row.extend((shape.len() as u32).to_le_bytes());
        row.extend(shape.iter().flat_map(|d| d.to_le_bytes()));
        row.extend(kind.to_le_bytes());
        row.extend(offset.to_le_bytes());
        row
    };
    check("", "test.gguf is not a GGUF file: it is empty");
    check("# Read me", "test.gguf is not a GGUF file: it begins with \"# Re\"");
    check(
        "version https://git-lfs.github.com/spec/v1",
        "test.gguf is not a GGUF file: it is a Git LFS pointer; fetch the file itself with `git lfs pull`",
    );
    check(
        "GGUF\x03",
        "test.gguf, byte 4, version: needs 4 bytes, the file ends after 1 (is it a partial download?)",
    );
    let big = "test.gguf is a big-endian GGUF file, made for another kind of machine: only little-endian ones can be read";
    check("GGUF\0\0\0\x03", big);
    check("FUGG\0\0\0\x03", big);
    check("GGUF\x09\0\0\0", "test.gguf has GGUF version 9: versions 1 to 3 can be read");
    check("GGUF\0\0\0\0", "test.gguf has GGUF version 0: versions 1 to 3 can be read");
    check(
        header(u64::MAX, 0, &[]),
        "test.gguf, byte 8, number of tensors: 18446744073709551615 of them can't be in the 8 bytes that are left of the file",
    );
    check(
        header(0, 1 << 40, &[&[0; 64]]),
        "test.gguf, byte 16, number of metadata keys: 1099511627776 of them can't be in the 64 bytes that are left of the file",
    );
    check(
        header(0, 1, &[&u64::MAX.to_le_bytes(), &[0; 16]]),
        "test.gguf, byte 24, name of metadata key 0: has 18446744073709551615 bytes, the file ends after 16 (is it a partial download?)",
    );
    check(
        header(0, 1, &[&key("k", 13, &[0; 8])]),
        "test.gguf, byte 33, value of k: there is no value type 13",
    );
    check(header(0, 1, &[&key("k", 7, &[2])]), "test.gguf, byte 37, value of k: 2 is no bool");
    check(
        header(0, 1, &[&key("k", 8, &[2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff])]),
        "test.gguf, byte 37, value of k: is not UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
    );
    check(
        header(0, 1, &[&key("k", 9, &[&5u32.to_le_bytes()[..], &(1u64 << 62).to_le_bytes()].concat())]),
        "test.gguf, byte 41, value of k: 4611686018427387904 of them can't be in the 0 bytes that are left of the file",
    );
    check(
        header(0, 2, &[&key("k", 0, &[1]), &key("k", 0, &[1])]),
        "test.gguf, byte 38, metadata key k: is there twice",
    );
    let nested: Vec<u8> =
        (0..9).flat_map(|_| [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat()).collect();
    check(
        header(0, 1, &[&key("k", 9, &nested), &[0; 64]]),
        "test.gguf, byte 133, value of k: arrays are nested more than 8 deep",
    );
    check(
        header(0, 1, &[&key("general.alignment", 4, &[33, 0, 0, 0])]),
        "test.gguf: metadata key general.alignment is 33, expected a power of two",
    );
    check(
        header(1, 0, &[&tensor("t", &[1; 5], 0, 0)]),
        "test.gguf, byte 33, number of dimensions of tensor t: is 5, the format allows 4",
    );
    check(
        header(1, 0, &[&tensor("t", &[1 << 40, 1 << 40], 97, 0)]),
        "test.gguf, byte 33, shape of tensor t: [1099511627776, 1099511627776] is more than 64 bits can count",
    );
    check(
        header(1, 0, &[&tensor("t", &[31], 8, 0)]),
        "test.gguf, byte 33, shape of tensor t: rows of 31 values are not whole Q8_0 blocks of 32",
    );
    check(
        header(1, 0, &[&tensor("t", &[1], 0, 33)]),
        "test.gguf, byte 49, offset of tensor t: 33 is not a multiple of the alignment, 32",
    );
    let outside = |at: &str| {
        format!("test.gguf, byte 24, tensor t: should lie at bytes {at} (is it a partial download?)")
    };
    check(header(1, 0, &[&tensor("t", &[9], 0, 0), &[0; 39]]), &outside("64 to 100, the file ends at 96"));
    check(
        header(1, 0, &[&tensor("t", &[9], 0, u64::MAX - 31), &[0; 39]]),
        &outside("2^64 to 2^64, the file ends at 96"),
    );
    check(
        header(1, 0, &[&tensor("t", &[9], 97, 128), &[0; 39]]),
        &outside("192 to 192, the file ends at 96"),
    );
    check(
        header(2, 0, &[&tensor("t", &[1], 0, 0), &tensor("t", &[1], 0, 0), &[0; 64]]),
        "test.gguf holds the tensor t for a second time",
    );
}

#[test]
fn wrong_paths() {
    let dir = tempfile::tempdir().unwrap();
    let error = Gguf::open(dir.path()).unwrap_err();
    assert!(matches!(error, GgufError::Directory { .. }), "{error}");
    let error = Gguf::open(&dir.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(error, GgufError::Open { .. }), "{error}");
    let empty = dir.path().join("empty.gguf");
    fs::write(&empty, "").unwrap();
    assert!(matches!(Gguf::open(&empty).unwrap_err(), GgufError::NotGguf { .. }));
}

/// Part `number` of `count` with one tensor of its own.
fn part(number: u16, count: u16) -> Writer {
    let writer = Writer::new()
        .meta("split.no", number)
        .meta("split.count", count)
        .meta("split.tensors.count", i32::from(count))
        .tensor(&format!("t{number}"), &[1], TensorType::F32, vec![number as u8; 4]);
    if number == 0 { writer.meta("general.name", "whole") } else { writer }
}

#[test]
fn split_files_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let path = |number: u16| -> PathBuf { dir.path().join(format!("m-{number:05}-of-00003.gguf")) };
    for number in 0..3 {
        fs::write(path(number + 1), part(number, 3).bytes().unwrap()).unwrap();
    }
    for given in 1..=3 {
        let gguf = Gguf::open(&path(given)).unwrap();
        assert_eq!(gguf.parts(), 3);
        assert_eq!(gguf.metadata().str("general.name").unwrap(), Some("whole"));
        for number in 0..3u8 {
            let info = gguf.tensor(&format!("t{number}")).unwrap();
            assert_eq!(&gguf.data(info)[..], &[number; 4]);
        }
    }
    let message = |path: &Path| {
        Gguf::open(path).unwrap_err().to_string().replace(&format!("{}/", dir.path().display()), "")
    };
    fs::write(path(2), part(2, 3).bytes().unwrap()).unwrap();
    assert_eq!(
        message(&path(1)),
        "m-00002-of-00003.gguf should be part 2 of 3 of a split model, but it says that it is part 3 of 3"
    );
    fs::remove_file(path(2)).unwrap();
    assert_eq!(message(&path(3)), "part 2 of 3 of a split model is missing: m-00002-of-00003.gguf");
    let renamed = dir.path().join("renamed.gguf");
    fs::rename(path(3), &renamed).unwrap();
    assert_eq!(
        message(&renamed),
        "renamed.gguf is part 3 of a model split into 3 files: keep them together under names that end in \
         -00001-of-00003.gguf and so on, and name one of them"
    );
}

/// Reads everything that a file claims to contain; an undetected false claim would panic here.
fn touch(gguf: &Gguf) {
    for info in gguf.tensors() {
        assert_eq!(gguf.data(info).len() as u64, info.bytes);
        let _ = info.values();
    }
    for (key, value) in gguf.metadata().iter() {
        assert!(gguf.metadata().get(key).is_some());
        let _ = (value.type_name(), gguf.metadata().u64s(key), gguf.metadata().str(key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mutated_files_never_panic(
        version in 1u32..=3,
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        huge in prop::option::of((any::<prop::sample::Index>(), prop::sample::select(vec![
            u64::MAX, i64::MAX as u64, 1 << 32, u64::from(u32::MAX), 1 << 16, u64::MAX / 4 + 1,
        ]))),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().version(version).bytes().unwrap();
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((index, value)) = huge {
            let at = index.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(index) = cut {
            bytes.truncate(index.index(bytes.len()));
        }
        match parse(bytes) {
            Ok(gguf) => touch(&gguf),
            Err(error) => prop_assert!(error.to_string().contains("test.gguf")),
        }
    }
}

#[test]
fn every_truncation_is_an_error_or_whole() {
    let bytes = sample().bytes().unwrap();
    let whole = parse(bytes.clone()).unwrap();
    // Only padding follows the last tensor that has bytes.
    let end = whole.tensors().map(|t| t.offset() + t.bytes).max().unwrap() as usize;
    for cut in 0..end {
        assert!(parse(bytes[..cut].to_vec()).is_err(), "cut at {cut}");
    }
}

#[test]
fn fixtures_round_trip() {
    let Some(cases) = crate::absent::shared("fixtures/arch") else { return };
    let mut count = 0;
    for case in fs::read_dir(cases).unwrap() {
        let path = case.unwrap().path().join("model.gguf");
        if path.exists() {
            let gguf = Gguf::open(&path).unwrap();
            touch(&gguf);
            assert!(
                Writer::copy_of(&gguf).bytes().unwrap() == fs::read(&path).unwrap(),
                "{}",
                path.display()
            );
            count += 1;
        }
    }
    assert!(count > 0, "no model found");
}

#[test]
fn formats_of_the_kernels_have_the_blocks_of_their_types() {
    for format in alara_kernels::Format::ALL {
        let kind = (0..64).map(TensorType).find(|kind| kind.name() == format.name());
        let sizes = Some((format.block_len() as u64, format.block_bytes() as u64));
        assert_eq!(kind.and_then(TensorType::block), sizes, "{}", format.name());
    }
}
