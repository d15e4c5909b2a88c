//! `/sys/kernel/slab`: what a SLUB cache is made of, and which cache names are one cache
//! (mm/slub.c, Documentation/ABI/testing/sysfs-kernel-slab).
//!
//! A cache that may not be merged is a directory of its name. One that may is a directory such as `:A-0000192`, and each
//! name that was ever merged into it is a symbolic link there; `/proc/slabinfo` prints one of these names. The files
//! read here do not change in a cache's life (but for `trace` and `failslab`, which root may switch), so each cache is
//! read once.

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::DirEntryExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{names::NameInterner, proc_file::parse_u64};
use crate::model::snapshot::SlabAttributes;

/// Relative to the root.
const PATH: &str = "sys/kernel/slab";

// The files named here are all that is ever opened. Others walk lists with interrupts off (`objects`,
// `objects_partial`), allocate to answer (`slabs`, `total_objects`), or act on the cache (`validate`, `shrink`).
const OBJECT_SIZE: &str = "object_size";
const SLAB_SIZE: &str = "slab_size";
const ALIGN: &str = "align";
const ORDER: &str = "order";
const OBJECTS_PER_SLAB: &str = "objs_per_slab";
const CPU_PARTIAL: &str = "cpu_partial";
const SHEAF_CAPACITY: &str = "sheaf_capacity";
/// Files that hold a flag, `0` or `1`; a kernel without the feature has no such file.
const FLAG_FILES: [&str; 10] = [
    "reclaim_account",
    "hwcache_align",
    "cache_dma",
    "destroy_by_rcu",
    "sanity_checks",
    "trace",
    "red_zone",
    "poison",
    "store_user",
    "failslab",
];

/// Why `/sys/kernel/slab` could not be read; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum SlabSysfsError {
    /// No such directory.
    #[error(
        "{}: the kernel does not provide it: it needs sysfs mounted and a kernel with CONFIG_SLUB=y and \
         CONFIG_SYSFS=y, without CONFIG_SLUB_TINY",
        path.display()
    )]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// Could not be listed.
    #[error("{}: cannot be listed: {source}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// What one [`SlabIndex::refresh`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabRefresh {
    /// Cache directories there are.
    pub directories: usize,
    /// Of them, read now, for they were new.
    pub read: usize,
    /// Known before and gone, or replaced by another cache of the name.
    pub forgotten: usize,
    /// Files of the directories read now that could not be read: their values are unknown. Mostly because the process
    /// gave up its privileges before the cache was made; to learn more of it, keep CAP_DAC_READ_SEARCH.
    pub unreadable_files: usize,
}

/// Reads `/sys/kernel/slab`.
#[derive(Debug)]
pub struct SlabSysfs;

impl SlabSysfs {
    /// Reads all caches of `<root>/sys/kernel/slab`. Which name of a merged cache is its own is known after a
    /// [`SlabIndex::refresh`] with the names of `/proc/slabinfo`.
    ///
    /// # Errors
    /// Any [`SlabSysfsError`].
    pub fn read_index(root: &Path) -> Result<SlabIndex, SlabSysfsError> {
        Self::read_index_at(root.join(PATH))
    }

    /// The same of a directory that is `/sys/kernel/slab`, or a copy of it.
    ///
    /// # Errors
    /// Any [`SlabSysfsError`].
    pub fn read_index_at(path: PathBuf) -> Result<SlabIndex, SlabSysfsError> {
        let mut index = SlabIndex { path, ..SlabIndex::default() };
        index.refresh(std::iter::empty())?;
        Ok(index)
    }
}

/// All caches by all their names.
#[derive(Debug, Default)]
pub struct SlabIndex {
    path: PathBuf,
    interner: NameInterner,
    /// By the directory's name.
    directories: HashMap<Arc<str>, Directory>,
    /// Directory of each link.
    links: HashMap<Arc<str>, Arc<str>>,
    /// Attributes of each name given to `refresh`.
    attributes: HashMap<Arc<str>, Arc<SlabAttributes>>,
}

/// One cache.
#[derive(Debug)]
struct Directory {
    /// sysfs gives no inode number twice while it runs, so another number is another cache.
    inode: u64,
    /// Read once; `aliases` is empty here.
    fixed: SlabAttributes,
    /// All names: the links to it, and its own unless it is one of the `:` kind. Sorted.
    names: Vec<Arc<str>>,
    /// The one of `names` that `refresh` was given.
    canonical: Option<Arc<str>>,
}

impl SlabIndex {
    /// Lists the directory anew, reads the caches that are new, forgets those that are gone, and maps the names that
    /// `/proc/slabinfo` prints to them.
    ///
    /// # Errors
    /// [`SlabSysfsError`], and then the index is as it was before.
    pub fn refresh<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> Result<SlabRefresh, SlabSysfsError> {
        let listing = list(&self.path)?;
        let known = self.directories.len();
        let mut done = SlabRefresh { directories: listing.directories.len(), ..SlabRefresh::default() };

        let mut before = std::mem::take(&mut self.directories);
        for (name, inode) in listing.directories {
            let key = self.interner.intern(name.as_bytes());
            let mut directory = match before.remove(&key) {
                Some(same) if same.inode == inode => same,
                _ => {
                    let (fixed, unreadable) = read_attributes(&self.path.join(&name));
                    done.read += 1;
                    done.unreadable_files += unreadable;
                    Directory { inode, fixed, names: Vec::new(), canonical: None }
                }
            };
            directory.canonical = None;
            directory.names.clear();
            if !key.starts_with(':') {
                directory.names.push(Arc::clone(&key));
            }
            self.directories.insert(key, directory);
        }
        done.forgotten = known + done.read - done.directories;

        self.links.clear();
        for (name, target) in listing.links {
            let (name, target) = (self.interner.intern(name.as_bytes()), self.interner.intern(target.as_bytes()));
            if let Some(directory) = self.directories.get_mut(&target) {
                directory.names.push(Arc::clone(&name));
                self.links.insert(name, target);
            }
        }
        for directory in self.directories.values_mut() {
            directory.names.sort_unstable();
        }

        self.map_names(names);
        self.interner.forget_unused();
        Ok(done)
    }

    fn map_names<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut before = std::mem::take(&mut self.attributes);
        let mut seen = HashSet::new();
        for name in names {
            if !seen.insert(name) {
                continue;
            }
            let Some(key) = self.directory_of(name).cloned() else { continue };
            let Some(directory) = self.directories.get_mut(&key) else { continue };
            let name = self.interner.intern(name.as_bytes());
            let aliases = directory.names.iter().filter(|alias| !is_same_name(alias, &name));
            let unchanged = before.remove(&name).filter(|old| {
                aliases.clone().eq(&old.aliases)
                    && SlabAttributes { aliases: Vec::new(), ..(**old).clone() } == directory.fixed
            });
            let attributes = unchanged.unwrap_or_else(|| {
                Arc::new(SlabAttributes { aliases: aliases.cloned().collect(), ..directory.fixed.clone() })
            });
            directory.canonical.get_or_insert_with(|| Arc::clone(&name));
            self.attributes.insert(name, attributes);
        }
    }

    /// Attributes of a cache by the name that was given to [`Self::refresh`]. Shared with the last refresh if nothing
    /// changed.
    #[must_use]
    pub fn attributes(&self, name: &str) -> Option<&Arc<SlabAttributes>> {
        self.attributes.get(name)
    }

    /// The name by which `/proc/slabinfo` lists the cache that has this name or alias. `None` if there is no such cache,
    /// or if none of its names was given to [`Self::refresh`].
    #[must_use]
    pub fn canonical_name(&self, name_or_alias: &str) -> Option<&Arc<str>> {
        if let Some((name, _)) = self.attributes.get_key_value(name_or_alias) {
            return Some(name);
        }
        self.directories.get(self.directory_of(name_or_alias)?)?.canonical.as_ref()
    }

    /// How many caches there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.directories.len()
    }

    /// Whether there is no cache.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// The directory of a cache's name.
    fn directory_of(&self, name: &str) -> Option<&Arc<str>> {
        let by_exact_name = |name: &str| {
            self.links.get(name).or_else(|| self.directories.get_key_value(name).map(|(directory, _)| directory))
        };
        // sysfs allows no slash in a directory's name and puts an exclamation mark there.
        by_exact_name(name).or_else(|| by_exact_name(&name.contains('/').then(|| name.replace('/', "!"))?))
    }
}

/// Whether a name of sysfs is this name of slabinfo.
fn is_same_name(in_sysfs: &str, in_slabinfo: &str) -> bool {
    in_sysfs == in_slabinfo || in_slabinfo.contains('/') && in_sysfs == in_slabinfo.replace('/', "!")
}

/// The entries of `/sys/kernel/slab`.
#[derive(Default)]
struct Listing {
    /// Name and inode number.
    directories: Vec<(OsString, u64)>,
    /// Name and the directory it points to.
    links: Vec<(OsString, OsString)>,
}

fn list(path: &Path) -> Result<Listing, SlabSysfsError> {
    let list_error = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => SlabSysfsError::Missing { path: path.to_owned() },
        _ => SlabSysfsError::List { path: path.to_owned(), source },
    };
    let mut listing = Listing::default();
    for entry in fs::read_dir(path).map_err(list_error)? {
        let entry = entry.map_err(list_error)?;
        let kind = entry.file_type().map_err(list_error)?;
        if kind.is_dir() {
            listing.directories.push((entry.file_name(), entry.ino()));
        } else if kind.is_symlink() {
            match fs::read_link(entry.path()) {
                Ok(target) => {
                    let target = target.file_name().map(OsStr::to_os_string).unwrap_or_default();
                    listing.links.push((entry.file_name(), target));
                }
                // Caches come and go while the directory is read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(list_error(error)),
            }
        }
    }
    Ok(listing)
}

/// The attributes that never change, and how many files could not be read.
fn read_attributes(directory: &Path) -> (SlabAttributes, usize) {
    let mut unreadable = 0;
    let mut read = |file| match read_number(&directory.join(file)) {
        Ok(number) => number,
        Err(_) => {
            unreadable += 1;
            None
        }
    };
    let attributes = SlabAttributes {
        object_size_bytes: read(OBJECT_SIZE),
        slab_size_bytes: read(SLAB_SIZE),
        align_bytes: read(ALIGN),
        order: read(ORDER).and_then(|order| u32::try_from(order).ok()),
        objects_per_slab: read(OBJECTS_PER_SLAB),
        cpu_partial_objects: read(CPU_PARTIAL),
        sheaf_capacity_objects: read(SHEAF_CAPACITY),
        flags: FLAG_FILES.into_iter().filter(|flag| read(flag) == Some(1)).collect(),
        aliases: Vec::new(),
    };
    (attributes, unreadable)
}

/// The number in a file; `None` if there is no such file.
fn read_number(path: &Path) -> io::Result<Option<u64>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    // A number below 2^64 has at most 20 digits; sysfs gives them in one read.
    let mut text = [0; 32];
    let length = file.read(&mut text)?;
    let number = parse_u64(text[..length].trim_ascii());
    number.map(Some).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{mem::MaybeUninit, os::unix::fs::symlink};

    use rustix::fs::inotify;

    use super::*;

    /// All files of a 6.18 cache but those that are read here.
    const FORBIDDEN_FILES: [&str; 14] = [
        "aliases",
        "cpu_slabs",
        "ctor",
        "min_partial",
        "objects",
        "objects_partial",
        "partial",
        "remote_node_defrag_ratio",
        "shrink",
        "slabs",
        "slabs_cpu_partial",
        "total_objects",
        "usersize",
        "validate",
    ];

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir_all(root.path().join(PATH)).unwrap();
            Self(root)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(PATH).join(name)
        }

        /// A cache's directory with all files; flags 0 except those given.
        fn cache(&self, name: &str, object_size: u64, flags: &[&str]) {
            let directory = self.path(name);
            fs::create_dir(&directory).unwrap();
            let file = |file: &str, text: String| fs::write(directory.join(file), text).unwrap();
            file("object_size", format!("{object_size}\n"));
            file("slab_size", format!("{}\n", object_size + 8));
            file("align", "8\n".to_owned());
            file("order", "1\n".to_owned());
            file("objs_per_slab", "42\n".to_owned());
            for flag in FLAG_FILES {
                file(flag, format!("{}\n", u8::from(flags.contains(&flag))));
            }
            for forbidden in FORBIDDEN_FILES {
                file(forbidden, "9\n".to_owned());
            }
        }

        fn alias(&self, name: &str, directory: &str) {
            symlink(directory, self.path(name)).unwrap();
        }

        fn index(&self) -> SlabIndex {
            SlabSysfs::read_index(self.0.path()).unwrap()
        }
    }

    fn aliases(index: &SlabIndex, name: &str) -> Vec<String> {
        index.attributes(name).unwrap().aliases.iter().map(|alias| (**alias).to_owned()).collect()
    }

    /// The host of these tests: one merged cache of three names, one cache of its own.
    fn merged_tree() -> Tree {
        let tree = Tree::new();
        tree.cache(":A-0000128", 120, &["hwcache_align"]);
        for name in ["eventpoll_epi", "tcp_bind_bucket", "fib6_node"] {
            tree.alias(name, ":A-0000128");
        }
        tree.cache("dentry", 192, &["reclaim_account", "destroy_by_rcu"]);
        tree
    }

    #[test]
    fn a_merged_cache_is_found_by_its_slabinfo_name_and_knows_its_aliases() {
        let tree = merged_tree();
        let mut index = tree.index();
        index.refresh(["eventpoll_epi", "dentry"]).unwrap();
        let expected = SlabAttributes {
            object_size_bytes: Some(120),
            slab_size_bytes: Some(128),
            align_bytes: Some(8),
            order: Some(1),
            objects_per_slab: Some(42),
            cpu_partial_objects: None,
            sheaf_capacity_objects: None,
            flags: vec!["hwcache_align"],
            aliases: vec![Arc::from("fib6_node"), Arc::from("tcp_bind_bucket")],
        };
        assert_eq!(**index.attributes("eventpoll_epi").unwrap(), expected);
        let dentry = index.attributes("dentry").unwrap();
        assert_eq!(dentry.flags, ["reclaim_account", "destroy_by_rcu"]);
        assert!(dentry.aliases.is_empty());
        assert!(index.attributes("fib6_node").is_none());
    }

    #[test]
    fn an_alias_leads_to_the_name_that_slabinfo_prints() {
        let tree = merged_tree();
        let mut index = tree.index();
        assert_eq!(index.canonical_name("fib6_node"), None, "no name was given yet");
        index.refresh(["tcp_bind_bucket", "dentry"]).unwrap();
        for (name, canonical) in [
            ("fib6_node", Some("tcp_bind_bucket")),
            ("tcp_bind_bucket", Some("tcp_bind_bucket")),
            (":A-0000128", Some("tcp_bind_bucket")),
            ("dentry", Some("dentry")),
            ("nothing", None),
        ] {
            assert_eq!(index.canonical_name(name).map(|name| &**name), canonical, "{name}");
        }
    }

    #[test]
    fn only_the_listed_files_are_ever_opened() {
        let tree = merged_tree();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        for directory in [":A-0000128", "dentry"] {
            inotify::add_watch(&watch, tree.path(directory), inotify::WatchFlags::ALL_EVENTS).unwrap();
        }
        tree.index().refresh(["dentry"]).unwrap();

        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watch, &mut buffer);
        let mut touched = HashSet::new();
        while let Ok(event) = events.next() {
            touched.extend(event.file_name().map(|file| file.to_str().unwrap().to_owned()));
        }
        let mut allowed: HashSet<String> = FLAG_FILES.map(str::to_owned).into();
        allowed.extend(["object_size", "slab_size", "align", "order", "objs_per_slab"].map(str::to_owned));
        assert_eq!(touched, allowed);
        assert!(FORBIDDEN_FILES.iter().all(|file| !touched.contains(*file)));
    }

    #[test]
    fn a_known_cache_is_not_read_again_and_its_attributes_are_shared() {
        let tree = merged_tree();
        let mut index = tree.index();
        index.refresh(["dentry", "eventpoll_epi"]).unwrap();
        let before = Arc::clone(index.attributes("dentry").unwrap());
        fs::write(tree.path("dentry").join("object_size"), "7\n").unwrap();
        let done = index.refresh(["dentry", "eventpoll_epi"]).unwrap();
        assert_eq!(done, SlabRefresh { directories: 2, ..SlabRefresh::default() });
        assert!(Arc::ptr_eq(&before, index.attributes("dentry").unwrap()));
    }

    #[test]
    fn new_caches_and_aliases_are_seen_and_gone_ones_forgotten() {
        let tree = merged_tree();
        let mut index = tree.index();
        index.refresh(["dentry", "eventpoll_epi"]).unwrap();
        tree.cache("new", 64, &[]);
        tree.alias("another", ":A-0000128");
        fs::remove_file(tree.path("fib6_node")).unwrap();
        fs::remove_dir_all(tree.path("dentry")).unwrap();
        let done = index.refresh(["new", "eventpoll_epi", "dentry"]).unwrap();
        assert_eq!(done, SlabRefresh { directories: 2, read: 1, forgotten: 1, unreadable_files: 0 });
        assert_eq!(index.len(), 2);
        assert_eq!(index.attributes("new").unwrap().object_size_bytes, Some(64));
        assert!(index.attributes("dentry").is_none() && index.canonical_name("dentry").is_none());
        assert_eq!(aliases(&index, "eventpoll_epi"), ["another", "tcp_bind_bucket"]);
    }

    #[test]
    fn a_cache_made_again_under_its_name_is_read_again() {
        let tree = merged_tree();
        let mut index = tree.index();
        index.refresh(["dentry"]).unwrap();
        // Made before the old one goes: a file system, unlike sysfs, may give the same inode number again.
        tree.cache("replacement", 200, &[]);
        fs::remove_dir_all(tree.path("dentry")).unwrap();
        fs::rename(tree.path("replacement"), tree.path("dentry")).unwrap();
        let done = index.refresh(["dentry"]).unwrap();
        assert_eq!((done.read, done.forgotten), (1, 1));
        assert_eq!(index.attributes("dentry").unwrap().object_size_bytes, Some(200));
    }

    #[test]
    fn a_name_that_moved_to_another_directory_has_its_attributes() {
        let tree = merged_tree();
        tree.cache(":0000256", 250, &[]);
        let mut index = tree.index();
        index.refresh(["fib6_node", "tcp_bind_bucket"]).unwrap();
        assert_eq!(index.attributes("fib6_node").unwrap().object_size_bytes, Some(120));
        fs::remove_file(tree.path("fib6_node")).unwrap();
        tree.alias("fib6_node", ":0000256");
        index.refresh(["fib6_node", "tcp_bind_bucket"]).unwrap();
        assert_eq!(index.attributes("fib6_node").unwrap().object_size_bytes, Some(250));
        assert!(aliases(&index, "fib6_node").is_empty());
        assert_eq!(aliases(&index, "tcp_bind_bucket"), ["eventpoll_epi"]);
    }

    #[test]
    fn missing_and_unreadable_files_are_unknown() {
        let tree = Tree::new();
        tree.cache("partly", 64, &["trace", "cache_dma"]);
        for file in ["object_size", "cache_dma", "order", "align"] {
            fs::remove_file(tree.path("partly").join(file)).unwrap();
        }
        fs::create_dir(tree.path("partly").join("order")).unwrap();
        fs::write(tree.path("partly").join("align"), "wide\n").unwrap();
        let mut index = SlabIndex { path: tree.path(""), ..SlabIndex::default() };
        let done = index.refresh(["partly"]).unwrap();
        assert_eq!(done, SlabRefresh { directories: 1, read: 1, forgotten: 0, unreadable_files: 2 });
        let attributes = index.attributes("partly").unwrap();
        assert_eq!((attributes.object_size_bytes, attributes.order, attributes.align_bytes), (None, None, None));
        assert_eq!(attributes.slab_size_bytes, Some(72));
        assert_eq!(attributes.flags, ["trace"]);
    }

    #[test]
    fn a_slash_in_a_name_is_an_exclamation_mark_in_sysfs() {
        let tree = Tree::new();
        tree.cache("fs!cache", 64, &[]);
        let mut index = tree.index();
        index.refresh(["fs/cache"]).unwrap();
        assert!(aliases(&index, "fs/cache").is_empty());
        assert_eq!(index.canonical_name("fs/cache").map(|name| &**name), Some("fs/cache"));
    }

    #[test]
    fn a_dangling_link_and_a_plain_file_are_no_caches() {
        let tree = merged_tree();
        tree.alias("dangling", ":0009999");
        fs::write(tree.path("file"), "").unwrap();
        let mut index = tree.index();
        index.refresh(["dangling", "file"]).unwrap();
        assert_eq!(index.len(), 2);
        assert!(index.attributes("dangling").is_none() && index.attributes("file").is_none());
    }

    #[test]
    fn a_kernel_without_slub_is_said_to_be_one() {
        let root = tempfile::tempdir().unwrap();
        let error = SlabSysfs::read_index(root.path()).unwrap_err();
        assert!(matches!(error, SlabSysfsError::Missing { .. }));
        assert!(error.to_string().contains("CONFIG_SLUB=y"), "{error}");
    }
}
