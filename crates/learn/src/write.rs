//! Writing files that are there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
#[cfg(target_os = "linux")]
use std::os::{fd::AsRawFd, unix::fs::OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Symbolic links that may lead from one to the next: as many as the system follows.
const LINKS: usize = 40;

/// A file that is being written: it takes the place of what is at its path once all of it is there and on the disk. Until then it
/// has no name where the system has such files, and goes with the process, whatever ends that; else one of its own in the same
/// folder. Dropped before, it goes without a trace.
///
/// What takes the place of a file has its owner and its permissions; symbolic links stay, and what they lead to is replaced.
/// What is no file (a device, a pipe) is written to as it is.
#[derive(Debug)]
pub struct Target(Kind);

#[derive(Debug)]
enum Kind {
    Straight(File),
    Replacing { part: Part, path: PathBuf },
}

#[derive(Debug)]
enum Part {
    #[cfg(target_os = "linux")]
    Nameless(File),
    Named(NamedTempFile),
}

impl Part {
    /// Of what is to be at this path, in its folder.
    fn create(path: &Path) -> io::Result<Part> {
        path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        #[cfg(target_os = "linux")]
        if let Some(file) = nameless(folder(path)) {
            return Ok(Part::Nameless(file));
        }
        // With the permissions of any new file, not for its owner alone as temporary files are.
        Ok(Part::Named(named(path, |path| File::create_new(path))?))
    }

    fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Part::Nameless(file) => file,
            Part::Named(part) => part.as_file(),
        }
    }

    fn persist(self, path: &Path) -> io::Result<()> {
        match self {
            // Nothing takes another's place without having had a name.
            #[cfg(target_os = "linux")]
            Part::Nameless(file) => {
                use rustix::fs::{AtFlags, CWD, linkat};
                let give = |name: &Path| linkat(CWD, descriptor(&file), CWD, name, AtFlags::SYMLINK_FOLLOW);
                named(path, |name| Ok(give(name)?))?.persist(path)?;
            }
            Part::Named(part) => drop(part.persist(path)?),
        }
        Ok(())
    }
}

/// What is made under a name that nothing has in the folder of this path.
fn named<F>(path: &Path, make: impl FnMut(&Path) -> io::Result<F>) -> io::Result<NamedTempFile<F>> {
    let mut prefix = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_os_string();
    prefix.push(".");
    tempfile::Builder::new().prefix(&prefix).suffix(".part").make_in(folder(path), make)
}

/// A new file without a name, if the folder's disk has such and it could be given one.
#[cfg(target_os = "linux")]
fn nameless(folder: &Path) -> Option<File> {
    let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(folder).ok()?;
    descriptor(&file).exists().then_some(file)
}

#[cfg(target_os = "linux")]
fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Target {
    /// Begins to write what is to be at this path.
    ///
    /// # Errors
    /// If a file that is there may not be written to, or none may be made in its folder.
    pub fn create(path: &Path) -> io::Result<Target> {
        let old = match fs::metadata(path) {
            Ok(about) => {
                // Whether it may be written to; it is not emptied by that.
                let file = OpenOptions::new().append(true).open(path)?;
                if !about.is_file() || is_descriptor(path)? {
                    return Ok(Target(Kind::Straight(file)));
                }
                Some(about)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let path = followed(path)?;
        let part = Part::create(&path)?;
        if let Some(old) = old {
            let new = part.file().metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                // Only root may give files away; whoever else may replace the file does so with one of their own.
                let _ = fchown(part.file(), Some(old.uid()), Some(old.gid()));
            }
            part.file().set_permissions(old.permissions())?;
        }
        Ok(Target(Kind::Replacing { part, path }))
    }

    /// Whether it could be begun, to be asked before long work on what is to be written. Nothing is left of it; what is neither a file
    /// nor a folder (a pipe, whose reader would take that for all) is not opened.
    ///
    /// # Errors
    /// As of [`Target::create`].
    pub fn check(path: &Path) -> io::Result<()> {
        match fs::metadata(path) {
            Ok(about) if !about.is_file() && !about.is_dir() => Ok(()),
            _ => Target::create(path).map(drop),
        }
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// If it cannot be put on the disk or renamed; what was in its place is untouched then.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Kind::Straight(mut file) => file.flush(),
            Kind::Replacing { part, path } => {
                part.file().sync_all()?;
                part.persist(&path)?;
                // The name must survive too, where the folder may be opened.
                File::open(folder(&path)).map_or(Ok(()), |folder| folder.sync_all())
            }
        }
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Straight(file) => file.write(bytes),
            Kind::Replacing { part, .. } => part.file().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a path's symbolic links lead, whether or not there is something.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = folder(&path).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Whether a path names what the process has open (`/dev/stdout`, `/dev/fd/3`), which others write to as well.
fn is_descriptor(path: &Path) -> io::Result<bool> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let within = folder(&path).canonicalize()?;
        if within.starts_with("/proc") || within.starts_with("/dev/fd") {
            return Ok(true);
        }
        match fs::read_link(&path) {
            Ok(to) => path = within.join(to),
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::io::{Seek, SeekFrom};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut target = Target::create(path)?;
        target.write_all(text.as_bytes())?;
        target.finish()
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("it");
        write(&path, "old").unwrap();
        let mut target = Target::create(&path).unwrap();
        target.write_all(b"ne").unwrap();
        // Whatever ended the process now, nothing would be left of it, where files can be without a name.
        let named = matches!(target.0, Kind::Replacing { part: Part::Named(_), .. });
        assert_eq!(names(folder.path()).len(), 1 + usize::from(named));
        // Another one at the same time is another one.
        write(&path, "other").unwrap();
        Target::check(&path).unwrap();
        Target::check(&folder.path().join("new")).unwrap();
        target.write_all(b"w").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        target.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["it"]);
    }

    #[test]
    fn permissions_stay_and_new_files_have_the_usual() {
        let folder = tempfile::tempdir().unwrap();
        let (path, usual) = (folder.path().join("it"), folder.path().join("usual"));
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        File::create(&usual).unwrap();
        write(&path, "new").unwrap();
        assert_eq!(mode(&path), mode(&usual));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write(&path, "again").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o600, b"again".to_vec()));
    }

    #[test]
    fn links_stay_and_lead_to_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("within")).unwrap();
        symlink("within/it", at("one")).unwrap();
        symlink(at("one"), at("two")).unwrap();
        // First they lead to nothing.
        for text in ["new", "newer"] {
            write(&at("two"), text).unwrap();
            assert_eq!(fs::read_to_string(at("within/it")).unwrap(), text);
        }
        assert!(at("one").is_symlink() && at("two").is_symlink());
        assert_eq!((names(folder.path()).len(), names(&at("within")).len()), (3, 1));
        symlink("round", at("round")).unwrap();
        assert!(write(&at("round"), "").is_err());
    }

    #[test]
    fn what_is_no_file_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let reading = std::thread::spawn({
            let path = path.clone();
            move || fs::read_to_string(path).unwrap()
        });
        write(&path, "through").unwrap();
        assert_eq!(reading.join().unwrap(), "through");
        assert_eq!(names(folder.path()), ["pipe"]);
        let error = write(folder.path(), "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(Target::check(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        // Nobody reads it: to open it would take for ever.
        Target::check(&path).unwrap();
        // A descriptor is whoever else's that has it open, too.
        let (kept, file) = (folder.path().join("kept"), folder.path().join("open"));
        symlink(&file, &kept).unwrap();
        let mut open = File::create(&file).unwrap();
        write(Path::new(&format!("/dev/fd/{}", open.as_raw_fd())), "one ").unwrap();
        open.seek(SeekFrom::End(0)).unwrap();
        open.write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "one two");
    }
}
