//! Every report in `tests/fixtures/slabinfo` gives its listed answer, and this machine's own files read as a whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use slabmon::host::{
    dentry_state::DentryState,
    meminfo::Meminfo,
    names::{NameInterner, split_memcg_name},
    slab_sysfs::SlabSysfs,
    slabinfo::{SlabStatistics, Slabinfo, SlabinfoError, SlabinfoReader, SlabinfoRow, SlabinfoVersion, Tunables},
};

const PAGE_SIZE_BYTES: u64 = 4096;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/slabinfo").join(name)
}

fn read(name: &str) -> Result<Slabinfo, SlabinfoError> {
    let path = fixture(name);
    SlabinfoReader::from_file(File::open(&path).unwrap(), path).read()
}

fn read_meminfo(name: &str) -> Meminfo {
    let path = fixture(name);
    Meminfo::parse(&path, &fs::read(&path).unwrap()).unwrap()
}

fn rows<'a>(slabinfo: &'a Slabinfo, name: &str) -> Vec<&'a SlabinfoRow> {
    slabinfo.rows.iter().filter(|row| &*row.name == name).collect()
}

fn row<'a>(slabinfo: &'a Slabinfo, name: &str) -> &'a SlabinfoRow {
    let found = rows(slabinfo, name);
    let [row] = found.as_slice() else { panic!("{} rows of {name}", found.len()) };
    row
}

fn held_kib(rows: &[&SlabinfoRow]) -> u64 {
    rows.iter().map(|row| row.held_bytes(PAGE_SIZE_BYTES)).sum::<u64>() / 1024
}

fn all_held_kib(slabinfo: &Slabinfo) -> u64 {
    held_kib(&slabinfo.rows.iter().collect::<Vec<_>>())
}

/// How many rows each name has.
fn row_counts(slabinfo: &Slabinfo) -> HashMap<&str, usize> {
    let mut counts = HashMap::new();
    for row in &slabinfo.rows {
        *counts.entry(&*row.name).or_default() += 1;
    }
    counts
}

#[test]
fn the_2007_ranking_comes_out_in_its_order() {
    let slabinfo = read("seed_2007_rank.slabinfo").unwrap();
    let mut ranking: Vec<_> =
        slabinfo.rows.iter().map(|row| (&*row.name, row.active_objects * row.object_size_bytes)).collect();
    ranking.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let expected = [
        ("ext3_inode_cache", 26_353_600),
        ("buffer_head", 20_945_920),
        ("radix_tree_node", 7_340_544),
        ("dentry_cache", 5_315_696),
        ("selinux_inode_security", 3_999_168),
        ("avtab_node", 3_855_312),
        ("size-32", 2_793_392),
        ("inode_cache", 1_448_928),
        ("size-64", 1_039_104),
        ("size-2048", 745_920),
    ];
    assert_eq!(ranking, expected);
}

#[test]
fn the_2007_waste_table_adds_up() {
    let slabinfo = read("seed_2007_waste.slabinfo").unwrap();
    // Used and empty bytes of a slab, empty bytes of all slabs.
    let expected = [
        ("ext3_inode_cache", 2800, 1296, 6_457_968),
        ("inode_cache", 3096, 1000, 736_000),
        ("dentry_cache", 3808, 288, 673_632),
        ("buffer_head", 3840, 256, 512_000),
        ("avtab_node", 3696, 400, 417_600),
        ("size-32", 3752, 344, 257_656),
        ("size-2048", 6216, 1976, 245_024),
        ("selinux_inode_security", 3840, 256, 168_448),
        ("proc_inode_cache", 3192, 904, 122_944),
        ("radix_tree_node", 4032, 64, 121_472),
        ("sighand_cache", 6384, 1808, 56_048),
        ("task_struct", 3776, 320, 50_240),
    ];
    assert_eq!(slabinfo.rows.len(), expected.len());
    for (name, used, empty, total) in expected {
        let row = row(&slabinfo, name);
        assert_eq!(row.object_size_bytes * row.objects_per_slab, used, "{name}");
        assert_eq!(row.pages_per_slab * PAGE_SIZE_BYTES - used, empty, "{name}");
        assert_eq!(row.held_bytes(PAGE_SIZE_BYTES) - used * row.slabs, total, "{name}");
    }
    assert_eq!(row(&slabinfo, "ext3_inode_cache").held_bytes(PAGE_SIZE_BYTES), 20_410_368);
}

#[test]
fn the_2010_caches_sum_to_meminfo() {
    let slabinfo = read("01_slub21_kmalloc64_7M_2010.slabinfo").unwrap();
    assert_eq!((slabinfo.version, slabinfo.statistics), (SlabinfoVersion::V2_1, false));
    assert_eq!(slabinfo.rows.len(), 83);
    assert_eq!(row_counts(&slabinfo).len(), 83);
    assert_eq!(all_held_kib(&slabinfo), 692_300);

    let meminfo = read_meminfo("01_meminfo.txt");
    assert_eq!(meminfo.slab_bytes, Some(692_296 << 10));
    assert_eq!(meminfo.slab_bytes, Some(meminfo.reclaimable_bytes.unwrap() + meminfo.unreclaimable_bytes.unwrap()));
    assert_eq!(meminfo.total_bytes, 33_084_008 << 10);
    assert_eq!(meminfo.available_bytes, None);

    let mut largest: Vec<_> = slabinfo.rows.iter().map(|row| (held_kib(&[row]), &*row.name)).collect();
    largest.sort_unstable();
    largest.reverse();
    assert_eq!(largest[..3], [(465_952, "kmalloc-64"), (144_072, "buffer_head"), (38_368, "radix_tree_node")]);
    assert_eq!(row(&slabinfo, "kmalloc_dma-512").object_size_bytes, 512);
}

#[test]
fn a_name_twice_is_two_rows() {
    let slabinfo = read("02_slub21_parisc64_6.10.3_debug_dupname.slabinfo").unwrap();
    assert_eq!(slabinfo.rows.len(), 57);
    let twice = rows(&slabinfo, "file_lock_cache");
    let numbers: Vec<_> = twice.iter().map(|row| (row.active_objects, row.objects, row.object_size_bytes)).collect();
    assert_eq!(numbers, [(0, 0, 280), (0, 26, 312)]);
    assert_eq!(twice.iter().map(|row| row.objects).sum::<u64>(), 26);
    assert_eq!(twice.iter().map(|row| row.objects * row.object_size_bytes).sum::<u64>(), 8112);
}

#[test]
fn debugging_makes_the_stride_larger_and_leaves_the_name() {
    let slabinfo = read("02_slub21_parisc64_6.10.3_debug_dupname.slabinfo").unwrap();
    assert_eq!(row(&slabinfo, "kmalloc-64").object_size_bytes, 256);
    assert_eq!(row(&slabinfo, "kmalloc-8k").object_size_bytes, 24_576);
    assert_eq!(rows(&slabinfo, "kmalloc-cg-8k").len(), 1);
    assert_eq!(rows(&slabinfo, "page->ptl").len(), 1);
}

#[test]
fn version_2_0_is_read_with_its_odd_names() {
    let slabinfo = read("03_slab20_i686_2.6.9_size-N_DMA.slabinfo").unwrap();
    assert_eq!((slabinfo.version, slabinfo.statistics), (SlabinfoVersion::V2_0, false));
    assert_eq!(slabinfo.rows.len(), 121);
    assert_eq!(row_counts(&slabinfo).len(), 121);
    assert_eq!(all_held_kib(&slabinfo), 16_292);
    for name in ["size-64(DMA)", "biovec-(256)"] {
        assert_eq!(rows(&slabinfo, name).len(), 1);
        assert_eq!(split_memcg_name(name), (name, None));
    }
    // The header has these two the other way round.
    let expected = Tunables { limit: 120, batchcount: 60, shared_factor: 8 };
    assert_eq!(row(&slabinfo, "dcookie_cache").tunables, expected);
    assert!(slabinfo.rows.iter().all(|row| row.tunables.batchcount <= row.tunables.limit));

    let meminfo = read_meminfo("03_meminfo.txt");
    assert_eq!(meminfo.slab_bytes, Some(16_276 << 10));
    assert_eq!((meminfo.reclaimable_bytes, meminfo.unreclaimable_bytes), (None, None));
    assert_eq!(meminfo.high_total_bytes, Some(3_080_128 << 10));
    assert_eq!(meminfo.low_total_bytes, Some(880_108 << 10));
}

#[test]
fn a_wrapped_file_is_refused_with_its_line() {
    let name = "03b_slab20_mail_wrapped.slabinfo";
    let error = read(name).unwrap_err();
    assert!(matches!(error, SlabinfoError::Malformed { line: 3, .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains(&format!("{name}:3: expected ")) && message.contains("wrapped"), "{message}");

    // With the header mended, the first row is the first to be wrong.
    let text = fs::read_to_string(fixture(name)).unwrap();
    let mended = text.replacen("<objperslab>\n", "", 1).replacen(" :\nslabdata <", "", 1);
    let error = Slabinfo::parse(Path::new("pasted"), mended.as_bytes(), &mut NameInterner::default()).unwrap_err();
    assert!(error.to_string().starts_with("pasted:3: expected"), "{error}");
    assert!(error.to_string().contains("dcookie_cache"), "{error}");
}

#[test]
fn statistics_of_2_0_are_read_in_spite_of_the_header_typos() {
    let slabinfo = read("04b_slab20_statistics_cpustat_rejoined.slabinfo").unwrap();
    assert_eq!((slabinfo.version, slabinfo.statistics), (SlabinfoVersion::V2_0, true));
    let row = row(&slabinfo, "broken");
    let statistics = row.statistics.unwrap();
    assert_eq!((statistics.allocations(), statistics.frees(), statistics.live()), (2_052_678, 2_052_678, Some(0)));
    assert_eq!((statistics.free_limit, statistics.node_allocations), (Some(70), None));
    // The objects that count as active are parked in the shared array.
    assert_eq!((row.active_objects, row.shared_available), (128, 128));
}

#[test]
fn statistics_of_2_1_have_nine_numbers() {
    let slabinfo = read("05_slab21_statistics_9col_embedded.slabinfo").unwrap();
    assert_eq!((slabinfo.version, slabinfo.statistics), (SlabinfoVersion::V2_1, true));
    assert_eq!(slabinfo.rows.len(), 16);
    assert_eq!(all_held_kib(&slabinfo), 11_156);
    let size_32 = row(&slabinfo, "size-32");
    let statistics = size_32.statistics.unwrap();
    assert_eq!((statistics.allocations(), statistics.frees(), statistics.live()), (145_279, 136_386, Some(8893)));
    assert_eq!(size_32.active_objects, 8910);
    let expected = SlabStatistics {
        list_allocations: 133,
        max_objects: 98,
        grown: 17,
        reaped: 3,
        errors: 0,
        max_freeable: 0,
        free_limit: None,
        node_allocations: Some(0),
        remote_frees: Some(0),
        alien_overflows: Some(0),
        allocation_hits: 7597,
        allocation_misses: 19,
        free_hits: 7534,
        free_misses: 1,
    };
    assert_eq!(row(&slabinfo, "task_struct").statistics, Some(expected));
}

#[test]
fn a_cache_per_network_card_is_kept_per_row() {
    let slabinfo = read("08_dup_mlx5_fs_5.14_RECONSTRUCTED.slabinfo").unwrap();
    let ftes = rows(&slabinfo, "mlx5_fs_ftes");
    assert_eq!(ftes.len(), 2);
    assert_eq!(ftes.iter().map(|row| row.objects).sum::<u64>(), 440);
    assert_eq!(ftes.iter().map(|row| row.slabs).sum::<u64>(), 10);
    assert_eq!(held_kib(&ftes), 320);
    let fgs = rows(&slabinfo, "mlx5_fs_fgs");
    assert_eq!(fgs.iter().map(|row| row.objects).sum::<u64>(), 84);
}

#[test]
fn red_zones_and_parked_slabs_are_held() {
    let slabinfo = read("09_rpi4_6.6.60_redzone_kmalloc-1k_is_3072.slabinfo").unwrap();
    let kmalloc = row(&slabinfo, "kmalloc-1k");
    assert_eq!((kmalloc.object_size_bytes, held_kib(&[kmalloc])), (3072, 2144));
    let idle = row(&slabinfo, "skbuff_small_head");
    assert_eq!((idle.active_objects, idle.slabs, held_kib(&[idle])), (0, 4, 64));
}

#[test]
fn per_cgroup_names_split_into_root_id_and_cgroup() {
    let text = fs::read_to_string(fixture("10_memcg_cache_names.txt")).unwrap();
    let split: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).map(split_memcg_name).collect();
    let expected = [
        ("kmalloc-512", Some((18_223, "session-c94.scope"))),
        ("task_struct", Some((18_223, "session-c94.scope"))),
        ("task_delay_info", Some((18_223, "session-c94.scope"))),
        ("sock_inode_cache", Some((1058, "docker.service"))),
        ("kmalloc-64", Some((602, "docker.socket"))),
        ("cred_jar", Some((602, "docker.socket"))),
        ("dentry", Some((990, "53b4e439f50242461e4c1246718e12d769d3bc4752c0f0ed5bc4f317bb4feb3d"))),
        ("mnt_cache", Some((9946, "ea4c61d01895b46bf04a9b8c54602a4a6fff12ca7341b3b21f879414c120da79"))),
        ("kmalloc-64", Some((382, "step_batch"))),
    ];
    assert_eq!(split, expected);
}

#[test]
fn per_cgroup_names_shift_no_column() {
    let text = fs::read_to_string(fixture("10_memcg_cache_names.txt")).unwrap();
    let names: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let file: String = std::iter::once("slabinfo - version: 2.1\n# name\n".to_owned())
        .chain(names.iter().map(|name| format!("{name:<17} 1 2 64 3 1 : tunables 0 0 0 : slabdata 4 5 0\n")))
        .collect();
    let slabinfo = Slabinfo::parse(Path::new("names"), file.as_bytes(), &mut NameInterner::default()).unwrap();
    assert_eq!(slabinfo.rows.iter().map(|row| &*row.name).collect::<Vec<_>>(), names);
    assert!(slabinfo.rows.iter().all(|row| (row.active_objects, row.slabs) == (1, 5)));
}

#[test]
fn a_dentry_explosion_is_mostly_negative() {
    let slabinfo = read("12_dentry_row.slabinfo").unwrap();
    assert_eq!(held_kib(&[row(&slabinfo, "dentry")]), 451_300);
    let path = fixture("12_dentry-state.txt");
    let state = DentryState::parse(&path, &fs::read(&path).unwrap()).unwrap();
    assert_eq!((state.dentries, state.unused, state.negative), (2_368_980, 2_357_899, 2_318_380));
    assert_eq!(format!("{:.1}", 100.0 * state.negative_share().unwrap()), "97.9");
}

#[test]
fn awkward_names_are_read_whole() {
    let slabinfo = read("14_names_with_spaces_quotes_utf8_SYNTHETIC_COUNTS.slabinfo").unwrap();
    let numbers: Vec<_> = slabinfo
        .rows
        .iter()
        .map(|row| {
            let counts = [row.active_objects, row.objects, row.object_size_bytes, row.objects_per_slab];
            (&*row.name, counts, row.pages_per_slab, row.slabs)
        })
        .collect();
    let expected = [
        ("ipc ports", [120, 168, 168, 24], 1, 7),
        ("my cache 4 tcp", [10, 12, 320, 12], 1, 1),
        ("foo : tunables 9", [1, 8, 512, 8], 1, 1),
        ("page->ptl", [39, 96, 128, 32], 1, 3),
        ("biovec-(256)", [256, 256, 3072, 2], 2, 128),
        ("my\"quoted\\cache", [3, 16, 256, 16], 1, 1),
        ("caché-日本", [2, 21, 192, 21], 1, 1),
        ("dentry(123:foo.service)", [50, 63, 192, 21], 1, 3),
    ];
    assert_eq!(numbers, expected);
    assert_eq!(split_memcg_name(numbers[7].0), ("dentry", Some((123, "foo.service"))));
}

/// A row of slabtop as the row of slabinfo that it was made from, and the KiB that slabtop says it holds. The object size,
/// which slabtop rounds, is not taken over.
fn slabinfo_row_of_slabtop(line: &str) -> (String, u64) {
    let mut words = line.split_whitespace();
    let mut next = || words.next().unwrap();
    let (objects, active, _used, _size, slabs, per_slab, held) =
        (next(), next(), next(), next(), next(), next(), next());
    let name = words.collect::<Vec<_>>().join(" ");
    let held_kib: u64 = held.strip_suffix('K').unwrap().parse().unwrap();
    let pages_per_slab = held_kib * 1024 / PAGE_SIZE_BYTES / slabs.parse::<u64>().unwrap();
    let row = format!(
        "{name:<17} {active} {objects} 0 {per_slab} {pages_per_slab} : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n"
    );
    (row, held_kib)
}

fn read_slabtop(name: &str) -> Slabinfo {
    let text = fs::read_to_string(fixture(name)).unwrap();
    let table = text.lines().skip_while(|line| !line.trim_start().starts_with("OBJS")).skip(1);
    let (rows, held): (Vec<_>, Vec<_>) = table.map(slabinfo_row_of_slabtop).unzip();
    let file = format!("slabinfo - version: 2.1\n# name\n{}", rows.concat());
    let slabinfo = Slabinfo::parse(Path::new(name), file.as_bytes(), &mut NameInterner::default()).unwrap();
    assert!(slabinfo.rows.len() > 3, "{name}");
    assert_eq!(slabinfo.rows.iter().map(|row| held_kib(&[row])).collect::<Vec<_>>(), held, "{name}");
    slabinfo
}

#[test]
fn hundreds_of_millions_of_objects_stay_exact() {
    let slabinfo = read_slabtop("16_coreos_ebitmap_node_734M.slabtop");
    let ebitmap = row(&slabinfo, "ebitmap_node");
    assert_eq!((ebitmap.active_objects, ebitmap.objects), (734_506_368, 734_506_368));
    assert_eq!((ebitmap.slabs, ebitmap.slabs * ebitmap.objects_per_slab), (11_476_662, ebitmap.objects));
    assert_eq!(ebitmap.held_bytes(PAGE_SIZE_BYTES), 45_906_648 << 10);
    // Of the whole that slabtop's head gives.
    let share = 45_906_648.0 / 47_376_581.93;
    assert_eq!(format!("{:.1}", 100.0 * share), "96.9");
}

#[test]
fn the_tables_of_slabtop_hold_what_they_say() {
    let leak = read_slabtop("15b_leak_rocm.slabtop");
    let near = |row: &&SlabinfoRow| (1_069_000..1_086_000).contains(&row.objects) && row.name.starts_with("kmalloc-");
    assert!(leak.rows.iter().filter(near).all(|row| row.active_objects * 1000 >= row.objects * 999));
    assert_eq!(leak.rows.iter().filter(near).count(), 4);

    let names = read_slabtop("27_kmalloc_rnd_rcl.slabtop");
    assert_eq!(row(&names, "kmalloc-rcl-96").active_objects, 1_015_620);
    assert_eq!(row(&names, "kmalloc-rnd-14-192").active_objects, 113_220);
    assert_eq!(held_kib(&rows(&names, "dentry")), 451_300);

    let fragmented = read_slabtop("28_fragmentation_centos7_docker_memory.slabtop");
    assert_eq!(row(&fragmented, "kmalloc-16").active_objects, 639_474);
}

/// What this user gets from this machine's file is what the reader gets: its rows, or the error that says why not.
#[test]
fn this_machine_s_slabinfo_is_read_or_refused_with_the_reason() {
    let opened = SlabinfoReader::open(Path::new("/"));
    match File::open("/proc/slabinfo").map_err(|error| error.kind()) {
        Ok(_) => {
            let mut reader = opened.unwrap();
            let slabinfo = reader.read().unwrap();
            assert!(slabinfo.rows.iter().any(|row| row.slabs > 0 && row.name.contains("64")));
            let text = fs::read_to_string("/proc/slabinfo").unwrap();
            assert!(slabinfo.rows.len().abs_diff(text.lines().count() - 2) <= 2);
            assert!(reader.read().unwrap().rows.len().abs_diff(slabinfo.rows.len()) <= 2);
        }
        Err(io::ErrorKind::PermissionDenied) => {
            let error = opened.unwrap_err();
            assert!(matches!(error, SlabinfoError::PermissionDenied { .. }));
            assert!(error.to_string().contains("CAP_DAC_READ_SEARCH"), "{error}");
        }
        Err(io::ErrorKind::NotFound) => assert!(matches!(opened, Err(SlabinfoError::NotBuiltIn { .. }))),
        Err(other) => panic!("{other}"),
    }
}

/// Where both are readable, sysfs and slabinfo agree on each cache. Two caches of one name have one directory at most.
#[test]
fn this_machine_s_sysfs_agrees_with_its_slabinfo() {
    let directories = fs::read_dir("/sys/kernel/slab")
        .map(|entries| entries.filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir()).count());
    let index = SlabSysfs::read_index(Path::new("/"));
    let Ok(directories) = directories else {
        assert!(index.is_err());
        return;
    };
    let mut index = index.unwrap();
    assert!(index.len().abs_diff(directories) <= 2);

    let Ok(mut reader) = SlabinfoReader::open(Path::new("/")) else {
        // Nor may this user read the files below: unknown, not zero.
        let entry = fs::read_dir("/sys/kernel/slab").unwrap().next().unwrap().unwrap();
        let name = entry.file_name().into_string().unwrap();
        index.refresh([name.as_str()]).unwrap();
        let readable = fs::read(entry.path().join("object_size")).is_ok();
        assert_eq!(index.attributes(&name).unwrap().object_size_bytes.is_some(), readable);
        return;
    };
    let before = reader.read().unwrap();
    index.refresh(before.rows.iter().map(|row| &*row.name)).unwrap();
    let after = reader.read().unwrap();
    let counts = row_counts(&before);
    let mut compared = 0;
    for row in before.rows.iter().filter(|row| counts[&*row.name] == 1 && rows(&after, &row.name).len() == 1) {
        let attributes = index.attributes(&row.name).unwrap_or_else(|| panic!("{} is not in sysfs", row.name));
        assert_eq!(attributes.slab_size_bytes, Some(row.object_size_bytes), "{}", row.name);
        assert_eq!(attributes.objects_per_slab, Some(row.objects_per_slab), "{}", row.name);
        assert_eq!(attributes.order.map(|order| 1 << order), Some(row.pages_per_slab), "{}", row.name);
        assert!(attributes.object_size_bytes.unwrap() <= row.object_size_bytes, "{}", row.name);
        for alias in &attributes.aliases {
            assert_eq!(index.canonical_name(alias).unwrap(), &row.name);
        }
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}
