//! The file system that a test machine boots with: a cpio archive (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Files keep the path that they have here, so what a program finds here it finds there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use cpio::newc;

use super::libraries::Root;

/// `S_IFDIR`, `S_IFREG` (inode(7)).
const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// What will be in the file system, by path.
#[derive(Debug, Default)]
pub struct Image {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Dir,
    Program(Vec<u8>),
    Text(Vec<u8>),
}

impl Image {
    /// Adds a file of text.
    pub fn add_text(&mut self, path: &str, text: &str) {
        self.add(Path::new(path), Entry::Text(text.as_bytes().to_vec()));
    }

    /// Adds a program under another path. It must need no libraries but those of a program that is added as itself.
    pub fn add_program_as(&mut self, path: &str, source: &Path) -> Result<()> {
        self.add(Path::new(path), Entry::Program(read(source)?));
        Ok(())
    }

    /// Adds a program that lies in `root`, with all libraries that it needs from there.
    pub fn add_program(&mut self, root: &Root, path: &Path) -> Result<()> {
        self.add_program_built(root, path, &root.file(path))
    }

    /// Adds a program that lies here, with all libraries that it needs from `root`.
    pub fn add_program_built(&mut self, root: &Root, path: &Path, source: &Path) -> Result<()> {
        self.add(path, Entry::Program(read(source)?));
        for library in root.libraries(source)? {
            if !self.entries.contains_key(&library) {
                let bytes = read(&root.file(&library))?;
                self.add(&library, Entry::Program(bytes));
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, entry: Entry) {
        for above in path.ancestors().skip(1).filter(|above| above.parent().is_some()) {
            self.entries.entry(above.to_owned()).or_insert(Entry::Dir);
        }
        self.entries.insert(path.to_owned(), entry);
    }

    /// Writes the archive.
    pub fn write(&self, output: impl Write) -> Result<()> {
        let mut output = output;
        for (number, (path, entry)) in self.entries.iter().enumerate() {
            let name = path.strip_prefix("/").unwrap_or(path).to_string_lossy();
            let (mode, bytes): (u32, &[u8]) = match entry {
                Entry::Dir => (DIR | 0o755, &[]),
                Entry::Program(bytes) => (FILE | 0o755, bytes),
                Entry::Text(bytes) => (FILE | 0o644, bytes),
            };
            // Files of the same number would be links of each other.
            let builder = newc::Builder::new(&name).mode(mode).nlink(1).ino(u32::try_from(number + 1)?);
            let mut writer = builder.write(output, u32::try_from(bytes.len())?);
            writer.write_all(bytes).with_context(|| format!("writing {}", path.display()))?;
            output = writer.finish()?;
        }
        newc::trailer(output)?.flush()?;
        Ok(())
    }

    /// The folders that hold programs, for `PATH`.
    pub fn program_folders(&self) -> String {
        let folders: BTreeSet<_> = self.entries.keys().filter_map(|path| path.parent()?.to_str()).collect();
        let are_for_programs = |folder: &&str| folder.ends_with("/bin") || folder.ends_with("/sbin");
        folders.into_iter().filter(are_for_programs).collect::<Vec<_>>().join(":")
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("{}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{super::architecture::Architecture, *};

    #[test]
    fn a_program_comes_with_its_libraries_and_every_folder_above_it() {
        let mut image = Image::default();
        let architecture = if cfg!(target_arch = "aarch64") { Architecture::Arm } else { Architecture::X86 };
        let root = Root::new(Path::new("/"), architecture);
        let shell = root.program("sh").unwrap();
        image.add_program(&root, &shell).unwrap();
        image.add_text("/vm/orders", "tests /t\n");
        assert!(
            image.entries.keys().any(|path| path.to_string_lossy().contains("libc.so")),
            "{:?}",
            image.entries.keys()
        );
        assert_eq!(image.entries[Path::new("/vm")], Entry::Dir);
        assert_eq!(image.program_folders(), shell.parent().unwrap().to_str().unwrap());
    }

    #[test]
    fn what_is_written_is_an_archive_with_every_entry_once() {
        let mut image = Image::default();
        image.add_text("/vm/orders", "tests /t\n");
        let mut bytes = Vec::new();
        image.write(&mut bytes).unwrap();
        let mut names = Vec::new();
        let mut rest: &[u8] = &bytes;
        loop {
            let reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push((reader.entry().name().to_owned(), reader.entry().mode(), reader.entry().file_size()));
            rest = reader.finish().unwrap();
        }
        let expected = [("vm", DIR | 0o755, 0), ("vm/orders", FILE | 0o644, 9)];
        assert_eq!(names, expected.map(|(name, mode, size)| (name.to_owned(), mode, size)));
    }
}
