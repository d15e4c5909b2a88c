//! The text of `/proc/slabinfo`, read row by row and each row from its right end: the name, on the left, is printed raw
//! and may hold anything, text that looks like columns included.

use std::path::Path;

use super::{
    super::{
        names::NameInterner,
        proc_file::{parse_u64, quote},
    },
    SlabStatistics, Slabinfo, SlabinfoError, SlabinfoRow, SlabinfoVersion, Tunables,
};

/// Before the version on the first line.
const VERSION_PREFIX: &[u8] = b"slabinfo - version: ";
/// After the version where the rows carry statistics.
const STATISTICS_SUFFIX: &[u8] = b" (statistics)";
/// Most numbers of a `globalstat` section.
const MAX_GLOBALSTAT: usize = 9;

/// What is wrong with a text, in a file that has no name yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    UnknownVersion { found: String },
    Malformed { line: usize, expected: &'static str, found: String },
}

impl Failure {
    fn malformed(line: usize, expected: &'static str, found: &[u8]) -> Self {
        Self::Malformed { line, expected, found: quote(found) }
    }

    pub(super) fn in_file(self, path: &Path) -> SlabinfoError {
        let path = path.to_owned();
        match self {
            Self::UnknownVersion { found } => SlabinfoError::UnknownVersion { path, found },
            Self::Malformed { line, expected, found } => SlabinfoError::Malformed { path, line, expected, found },
        }
    }
}

/// What the two header lines say of the rows.
struct Header {
    version: SlabinfoVersion,
    statistics: bool,
    /// Whether `globalstat` has a `freelimit` column: one length of that section means two things.
    free_limit: bool,
}

pub(super) fn parse_file(text: &[u8], names: &mut NameInterner) -> Result<Slabinfo, Failure> {
    // The kernel ends every line; a number cut short would still look like a number.
    let Some(text) = text.strip_suffix(b"\n") else {
        let line = text.iter().filter(|byte| **byte == b'\n').count() + 1;
        let last = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        return Err(Failure::malformed(line, "a line that ends with a newline", last));
    };
    let mut lines = text.split(|byte| *byte == b'\n').zip(1..);
    let header = parse_header(
        lines.next().map(|(line, _)| line).unwrap_or_default(),
        lines.next().map(|(line, _)| line).unwrap_or_default(),
    )?;
    let mut rows = Vec::with_capacity(text.len() / 100);
    for (line, number) in lines {
        let row = parse_row(line, &header, names).map_err(|expected| Failure::malformed(number, expected, line))?;
        rows.push(row);
    }
    Ok(Slabinfo { version: header.version, statistics: header.statistics, rows })
}

/// The first line is held to its words; of the second only that it is a comment, for kernels printed it with typos.
fn parse_header(first: &[u8], second: &[u8]) -> Result<Header, Failure> {
    let Some(version) = first.strip_prefix(VERSION_PREFIX) else {
        return Err(Failure::malformed(1, "\"slabinfo - version: 2.1\"", first));
    };
    let (version, statistics) = match version.strip_suffix(STATISTICS_SUFFIX) {
        Some(version) => (version, true),
        None => (version, false),
    };
    let version = match version {
        b"2.0" => SlabinfoVersion::V2_0,
        b"2.1" => SlabinfoVersion::V2_1,
        other => return Err(Failure::UnknownVersion { found: quote(other) }),
    };
    if !second.starts_with(b"# name") {
        return Err(Failure::malformed(2, "the column names, from \"# name\"", second));
    }
    let free_limit = second.windows(9).any(|word| word == b"freelimit");
    Ok(Header { version, statistics, free_limit })
}

/// One row; the error is what was expected.
fn parse_row(line: &[u8], header: &Header, names: &mut NameInterner) -> Result<SlabinfoRow, &'static str> {
    let mut row = FromRight { rest: line };
    let statistics = if header.statistics { Some(parse_statistics(&mut row, header)?) } else { None };

    let shared_available = row.number("a whole number below 2^64 as sharedavail, the last of slabdata")?;
    let slabs = row.number("a whole number below 2^64 as num_slabs")?;
    let active_slabs = row.number("a whole number below 2^64 as active_slabs")?;
    row.section("slabdata", "\": slabdata\" and three numbers")?;

    let shared_factor = row.number("a whole number below 2^64 as sharedfactor, the last of tunables")?;
    let batchcount = row.number("a whole number below 2^64 as batchcount")?;
    let limit = row.number("a whole number below 2^64 as limit")?;
    row.section("tunables", "\": tunables\" and three numbers")?;

    let pages_per_slab = row.number("a whole number below 2^64 as pagesperslab, the last before \": tunables\"")?;
    let objects_per_slab = row.number("a whole number below 2^64 as objperslab")?;
    let object_size_bytes = row.number("a whole number below 2^64 as objsize")?;
    let objects = row.number("a whole number below 2^64 as num_objs")?;
    let active_objects = row.number("a whole number below 2^64 as active_objs")?;

    let name = row.padded_name();
    if name.is_empty() {
        return Err("a cache's name before its five numbers");
    }
    Ok(SlabinfoRow {
        name: names.intern(name),
        active_objects,
        objects,
        object_size_bytes,
        objects_per_slab,
        pages_per_slab,
        tunables: Tunables { limit, batchcount, shared_factor },
        active_slabs,
        slabs,
        shared_available,
        statistics,
    })
}

/// `: globalstat` with 7 numbers (2.0), 8 (2.1 up to 2.6.2x, with or without `freelimit`) or 9; then `: cpustat` with 4.
fn parse_statistics(row: &mut FromRight<'_>, header: &Header) -> Result<SlabStatistics, &'static str> {
    let free_misses = row.number("a whole number below 2^64 as freemiss, the last of cpustat")?;
    let free_hits = row.number("a whole number below 2^64 as freehit")?;
    let allocation_misses = row.number("a whole number below 2^64 as allocmiss")?;
    let allocation_hits = row.number("a whole number below 2^64 as allochit")?;
    row.section("cpustat", "\": cpustat\" and four numbers")?;

    let mut from_right = [0; MAX_GLOBALSTAT];
    let mut count = 0;
    while row.last_word() != b"globalstat" {
        let place = from_right.get_mut(count).ok_or("\": globalstat\" and at most nine numbers")?;
        *place = row.number("\": globalstat\" and whole numbers below 2^64")?;
        count += 1;
    }
    row.section("globalstat", "\": globalstat\" and seven to nine numbers")?;
    let mut numbers = from_right;
    numbers[..count].reverse();
    let [list_allocations, max_objects, grown, reaped, errors, max_freeable, seventh, eighth, ninth] = numbers;
    let (free_limit, node_allocations, remote_frees, alien_overflows) = match (count, header.free_limit) {
        (7, _) => (Some(seventh), None, None, None),
        (8, true) => (Some(seventh), Some(eighth), None, None),
        (8, false) => (None, Some(seventh), Some(eighth), None),
        (9, _) => (None, Some(seventh), Some(eighth), Some(ninth)),
        _ => return Err("\": globalstat\" and seven to nine numbers"),
    };
    Ok(SlabStatistics {
        list_allocations,
        max_objects,
        grown,
        reaped,
        errors,
        max_freeable,
        free_limit,
        node_allocations,
        remote_frees,
        alien_overflows,
        allocation_hits,
        allocation_misses,
        free_hits,
        free_misses,
    })
}

/// What is left of a row, taken word by word from its right end. Words are parted by spaces, and by tabs, which some
/// kernels printed inside `globalstat`.
struct FromRight<'a> {
    rest: &'a [u8],
}

impl<'a> FromRight<'a> {
    /// Where the last word begins and ends.
    fn last_word_range(&self) -> (usize, usize) {
        let end = self.rest.iter().rposition(|byte| !is_separator(*byte)).map_or(0, |last| last + 1);
        let start = self.rest[..end].iter().rposition(|byte| is_separator(*byte)).map_or(0, |before| before + 1);
        (start, end)
    }

    fn last_word(&self) -> &'a [u8] {
        let (start, end) = self.last_word_range();
        &self.rest[start..end]
    }

    fn take_word(&mut self) -> &'a [u8] {
        let (start, end) = self.last_word_range();
        let word = &self.rest[start..end];
        self.rest = &self.rest[..start];
        word
    }

    fn number(&mut self, expected: &'static str) -> Result<u64, &'static str> {
        parse_u64(self.take_word()).ok_or(expected)
    }

    /// Takes `: word`, which opens a section.
    fn section(&mut self, word: &str, expected: &'static str) -> Result<(), &'static str> {
        if self.take_word() == word.as_bytes() && self.take_word() == b":" { Ok(()) } else { Err(expected) }
    }

    /// All that is left but the spaces that the kernel pads a name with.
    fn padded_name(&self) -> &'a [u8] {
        let end = self.rest.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
        &self.rest[..end]
    }
}

fn is_separator(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: &str = "slabinfo - version: 2.1\n# name\n";

    fn parse(text: &[u8]) -> Result<Slabinfo, Failure> {
        parse_file(text, &mut NameInterner::default())
    }

    fn failure(text: &str) -> (usize, &'static str) {
        match parse(text.as_bytes()) {
            Err(Failure::Malformed { line, expected, .. }) => (line, expected),
            other => unreachable!("{other:?}"),
        }
    }

    /// A row as `cache_show` (mm/slab_common.c) prints it.
    fn print_row(name: &str, n: &[u64; 11]) -> String {
        format!(
            "{name:<17} {:>6} {:>6} {:>6} {:>4} {:>4} : tunables {:>4} {:>4} {:>4} : slabdata {:>6} {:>6} {:>6}\n",
            n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]
        )
    }

    #[test]
    fn an_empty_file_has_no_first_line() {
        assert_eq!(failure(""), (1, "a line that ends with a newline"));
        assert_eq!(failure("\n"), (1, "\"slabinfo - version: 2.1\""));
        assert_eq!(failure("slabinfo - version: 2.1\n").0, 2);
    }

    #[test]
    fn a_file_with_no_cache_has_no_rows() {
        assert_eq!(parse(PLAIN.as_bytes()).unwrap().rows, []);
    }

    #[test]
    fn an_unknown_version_is_named() {
        for (line, version) in [("1.1", "1.1"), ("2.2", "2.2"), ("2.10 (statistics)", "2.10"), ("", "")] {
            let text = format!("slabinfo - version: {line}\n# name\n");
            assert_eq!(parse(text.as_bytes()), Err(Failure::UnknownVersion { found: version.to_owned() }));
        }
    }

    #[test]
    fn a_row_that_was_cut_is_refused_even_inside_its_last_number() {
        let text = format!("{PLAIN}{}", print_row("dentry", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]));
        for end in PLAIN.len() + 1..text.len() {
            assert_eq!(failure(&text[..end]).0, 3, "{:?}", &text[..end]);
        }
        assert!(parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn a_blank_line_is_no_row() {
        assert_eq!(failure(&format!("{PLAIN}\n{}", print_row("dentry", &[0; 11]))).0, 3);
    }

    #[test]
    fn a_row_without_a_name_is_refused() {
        assert_eq!(failure(&format!("{PLAIN}{}", print_row("", &[0; 11]))).1, "a cache's name before its five numbers");
    }

    #[test]
    fn a_number_of_2_to_the_64_is_refused_with_its_column() {
        let row = "dentry 18446744073709551616 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n";
        assert_eq!(failure(&format!("{PLAIN}{row}")), (3, "a whole number below 2^64 as active_objs"));
    }

    #[test]
    fn statistics_need_the_first_line_to_say_so() {
        let row = "x 1 1 64 64 1 : tunables 0 0 0 : slabdata 1 1 0 : globalstat 1 2 3 4 5 6 7 : cpustat 1 2 3 4\n";
        assert_eq!(failure(&format!("{PLAIN}{row}")).0, 3);
        let without = print_row("x", &[0; 11]);
        let text = format!("slabinfo - version: 2.1 (statistics)\n# name\n{without}");
        assert_eq!(failure(&text).0, 3);
    }

    fn statistics(header: &str, globalstat: &str) -> Result<SlabStatistics, Failure> {
        let text = format!(
            "slabinfo - version: 2.1 (statistics)\n# name {header}\n\
             x 1 1 64 64 1 : tunables 0 0 0 : slabdata 1 1 0 : globalstat {globalstat} : cpustat 11 12 13 14\n"
        );
        parse(text.as_bytes()).map(|slabinfo| slabinfo.rows[0].statistics.unwrap())
    }

    #[test]
    fn globalstat_is_read_by_its_length_and_its_header() {
        let common = SlabStatistics {
            list_allocations: 1,
            max_objects: 2,
            grown: 3,
            reaped: 4,
            errors: 5,
            max_freeable: 6,
            allocation_hits: 11,
            allocation_misses: 12,
            free_hits: 13,
            free_misses: 14,
            ..SlabStatistics::default()
        };
        let with = |free_limit, node_allocations, remote_frees, alien_overflows| {
            Ok(SlabStatistics { free_limit, node_allocations, remote_frees, alien_overflows, ..common })
        };
        assert_eq!(statistics("<freelimit>", "1 2 3 4 5 6 7"), with(Some(7), None, None, None));
        assert_eq!(statistics("<freelimit> <nodeallocs>", "1 2 3 4 5 6 7 8"), with(Some(7), Some(8), None, None));
        assert_eq!(statistics("<nodeallocs> <remotefrees>", "1 2 3 4 5 6 7 8"), with(None, Some(7), Some(8), None));
        // The tabs that a line continued inside a string left in the kernel's output.
        assert_eq!(statistics("", "1 2 3 4 \t\t\t\t5 6 7 8 9"), with(None, Some(7), Some(8), Some(9)));
    }

    #[test]
    fn globalstat_of_another_length_is_refused() {
        for numbers in ["", "1 2 3 4 5 6", "1 2 3 4 5 6 7 8 9 10", "1 2 3 x 5 6 7"] {
            assert!(statistics("", numbers).is_err(), "{numbers}");
        }
    }

    #[test]
    fn invalid_utf8_in_a_name_is_replaced() {
        let mut text = PLAIN.as_bytes().to_vec();
        text.extend_from_slice(b"bad\xff\xfename 1 2 64 64 1 : tunables 0 0 0 : slabdata 1 1 0\n");
        assert_eq!(&*parse(&text).unwrap().rows[0].name, "bad\u{fffd}\u{fffd}name");
    }

    proptest! {
        #[test]
        fn any_printed_row_reads_back(name in "\\PC{0,40}[^\\pC\\pZ]", numbers in any::<[u64; 11]>()) {
            let text = format!("{PLAIN}{}", print_row(&name, &numbers));
            let slabinfo = parse(text.as_bytes()).unwrap();
            let [row] = slabinfo.rows.as_slice() else { return Err(TestCaseError::fail("not one row")) };
            prop_assert_eq!(&*row.name, name.as_str());
            let read = [
                row.active_objects,
                row.objects,
                row.object_size_bytes,
                row.objects_per_slab,
                row.pages_per_slab,
                row.tunables.limit,
                row.tunables.batchcount,
                row.tunables.shared_factor,
                row.active_slabs,
                row.slabs,
                row.shared_available,
            ];
            prop_assert_eq!(read, numbers);
        }

        #[test]
        fn a_name_that_looks_like_a_row_stays_a_name(inner in any::<[u64; 11]>(), outer in any::<[u64; 11]>()) {
            let name = print_row("foo", &inner).trim_end().to_owned();
            let slabinfo = parse(format!("{PLAIN}{}", print_row(&name, &outer)).as_bytes()).unwrap();
            prop_assert_eq!(&*slabinfo.rows[0].name, name.as_str());
            prop_assert_eq!(slabinfo.rows[0].active_objects, outer[0]);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
            let mut rows = PLAIN.as_bytes().to_vec();
            rows.extend_from_slice(&bytes);
            rows.push(b'\n');
            let _ = parse(&rows);
        }

        #[test]
        fn arbitrary_columns_never_panic(
            statistics in any::<bool>(),
            words in proptest::collection::vec("[0-9]{1,21}|:|tunables|slabdata|globalstat|cpustat|\t", 0..40),
        ) {
            let suffix = if statistics { " (statistics)" } else { "" };
            let _ = parse(format!("slabinfo - version: 2.1{suffix}\n# name\n{}\n", words.join(" ")).as_bytes());
        }
    }
}
