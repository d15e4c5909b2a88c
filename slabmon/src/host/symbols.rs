//! `/proc/kallsyms`: addresses of the kernel's own symbols (proc_kallsyms(5)). They stay in the process.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

/// Address of `symbol` in the kernel proper. The error says why it is not to be had.
pub fn address_of(root: &Path, symbol: &str) -> Result<u64, String> {
    let path = root.join("proc/kallsyms");
    let file = File::open(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) => {
                return Err(format!("{}: has no `{symbol}`; it lists data only with KALLSYMS_ALL", path.display()));
            }
            Ok(_) => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
        }
        // Symbols of modules have the module's name behind them.
        let mut words = line.split_ascii_whitespace();
        if let (Some(address), Some(_), Some(name), None) = (words.next(), words.next(), words.next(), words.next())
            && name == symbol
        {
            return match u64::from_str_radix(address, 16) {
                Ok(0) => Err(format!("{}: addresses are hidden from this process", path.display())),
                Ok(address) => Ok(address),
                Err(_) => Err(format!("{}: not an address before `{symbol}`", path.display())),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn root_with(text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/kallsyms"), text).unwrap();
        root
    }

    #[test]
    fn a_symbol_of_the_kernel_is_found_and_a_modules_is_not() {
        let text = "0000000000000010 T slab_caches_x\n0000000000000020 d slab_caches\t[module]\n0000000000000030 D slab_caches\n";
        assert_eq!(address_of(root_with(text).path(), "slab_caches"), Ok(0x30));
    }

    #[test]
    fn hidden_addresses_and_missing_symbols_are_told_apart() {
        let root = root_with("0000000000000000 D slab_caches\n");
        assert!(address_of(root.path(), "slab_caches").unwrap_err().contains("hidden"));
        assert!(address_of(root.path(), "other").unwrap_err().contains("KALLSYMS_ALL"));
        assert!(address_of(Path::new("/nonexistent"), "x").unwrap_err().contains("/nonexistent/proc/kallsyms"));
    }
}
