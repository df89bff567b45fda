//! Folders and files that are their owner's alone, since what players say will be in them. What is there already
//! stays as it is.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    path::Path,
};

/// Makes a folder, and those above it that are missing.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut folders = DirBuilder::new();
    folders.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
    folders.create(path)
}

/// How a file is opened that must be new, for writing.
#[must_use]
pub fn new_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}
