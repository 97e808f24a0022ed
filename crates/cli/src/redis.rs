//! `isochrone redis`: one node in one process, ready for Redis clients, with the deployment file it runs beside its
//! data, so that the same directory can grow into a cluster.

use crate::arguments::Redis as Arguments;
use crate::{Status, Usage, log, node, output, protocols};
use anyhow::Context;
use isochrone_core::Deployment;
use isochrone_core::deployment::{Address, Node, PasswordHash};
use isochrone_node::journal::{self, DataDirectory, Expect};
use isochrone_node::node::{Sockets, StartError};
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The deployment file in the data directory.
const FILE: &str = "deployment.toml";
/// The node's name in a file of this verb's own.
const NAME: &str = "redis";
/// Where Redis listens.
const PORT: u16 = 6379;

/// What the command line says of the deployment; what it leaves out stays as it is.
struct Wishes {
    port: Option<u16>,
    bind: Option<IpAddr>,
    databases: Option<u8>,
    password: Option<String>,
    certificate: Option<(String, String)>,
    insecure: bool,
}

/// All that differs between the files that this verb writes.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Settings {
    bind: IpAddr,
    port: u16,
    /// How many keyspaces there are.
    databases: u8,
    /// The hash of the default user's password.
    password: Option<String>,
    /// Certificate and key that clients see.
    certificate: Option<(String, String)>,
    insecure: bool,
}

/// What is run, and what is to be written.
struct Plan {
    deployment: Deployment,
    text: Option<String>,
    /// What is there.
    before: Option<String>,
    expect: Expect,
}

/// Runs the verb.
pub(crate) fn run(arguments: Arguments) -> anyhow::Result<Status> {
    let Arguments { dir, port, bind, databases, password_hash, cert, key, insecure, format } = arguments;
    log::start("info", format)?;
    // One that is not there is made only where nothing else refuses the start, which is to leave nothing behind.
    let new = matches!(dir.try_exists(), Ok(false));
    if !new {
        make(&dir)?;
    }
    let certificate =
        cert.zip(key).map(|(cert, key)| Ok::<_, anyhow::Error>((absolute(&cert)?, absolute(&key)?)));
    let certificate = certificate.transpose()?;
    let wishes = Wishes { port, bind, databases, password: password_hash, certificate, insecure };
    let file = dir.join(FILE);
    let Plan { deployment, text, before, expect } = plan(&file, &held(&dir)?, wishes)?;
    let me = the_node(&deployment, &file, &dir)?.clone();
    let deployment = Arc::new(deployment);
    let sockets = Sockets::bind(&deployment, me.id).map_err(|error| refused(error, &file))?;
    if new {
        make(&dir)?;
    }
    let Some(text) = text else {
        return node::serve(deployment, &me, dir, expect, sockets, format, || Ok(()));
    };
    let Some(before) = before else {
        // Only when it runs is it known that the directory is ours, and only then is there data: a file without data is one
        // whose data is lost. Data without a file is not served ([`found_again`]).
        return node::serve(deployment, &me, dir, expect, sockets, format, || save(&file, &text));
    };
    // Nothing is written into another's directory, and nobody is served by what is not written: a start that is cut short
    // must not leave a node without the password that this one had.
    let found = DataDirectory::open(&dir, deployment.cluster_id(), me.id.0, expect);
    drop(found.map_err(|error| node::start(error.into()))?);
    save(&file, &text)?;
    let mut runs = false;
    let served = node::serve(deployment, &me, dir, expect, sockets, format, || {
        runs = true;
        Ok(())
    });
    if served.is_err() && !runs {
        save(&file, &before)?;
    }
    served
}

/// Makes the directory, and finds out whether it can be written.
fn make(dir: &Path) -> anyhow::Result<()> {
    let made = journal::make(dir).and_then(|()| tempfile::tempfile_in(dir));
    let Err(cause) = made else { return Ok(()) };
    let right = output::another_directory(&cause);
    Err(Usage(format!("--dir {}: cannot write there: {cause}\n  {right}", dir.display())).into())
}

/// The keyspaces whose data a directory of this verb's holds; another's is refused when it is opened.
fn held(dir: &Path) -> anyhow::Result<Vec<String>> {
    let ours = Deployment::parse(&Settings::default().text(), FILE, dir, &protocols::known())?.cluster_id();
    let found = DataDirectory::cluster_of(dir).map_err(|error| node::start(error.into()))?;
    match found {
        Some(cluster) if cluster == ours => Ok(isochrone_node::node::keyspaces(dir).map_err(node::start)?),
        _ => Ok(Vec::new()),
    }
}

/// What the file and the command line together ask for, where the directory holds the data of these keyspaces.
fn plan(file: &Path, held: &[String], wishes: Wishes) -> anyhow::Result<Plan> {
    let base = file.parent().unwrap_or(Path::new(""));
    let known = protocols::known().insecure(wishes.insecure);
    let parse = |text: &str| Deployment::parse(text, &file.display().to_string(), base, &known);
    let found = match fs::read_to_string(file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            let wrong = format!("{}: cannot be read: {error}", file.display());
            return Err(Usage(format!("{wrong}\n  start as the user to whom the directory belongs")).into());
        }
    };
    let Some(found) = found else {
        let said = wishes.databases.is_some();
        let settings = Settings::default().with(wishes)?;
        let text = settings.text();
        found_again(file, held, &settings, said)?;
        return Ok(Plan {
            deployment: parse(&text)?,
            text: Some(text),
            before: None,
            expect: Expect::Anything,
        });
    };
    let deployment = parse(&found)?;
    // A file that somebody has edited is theirs: it is run as it is, and never written again.
    let own = Settings::of(&deployment, &found);
    let Some(own) = own else {
        if let Some(option) = wishes.against(&deployment) {
            let wrong =
                format!("{option}: {} was edited, says something else, and is run as it is", file.display());
            return Err(Usage(format!("{wrong}\n  leave {option} away, or edit the file")).into());
        }
        return Ok(Plan { deployment, text: None, before: Some(found), expect: Expect::Existing });
    };
    let settings = own.clone().with(wishes)?;
    let text = settings.text();
    let changed = settings != own;
    let (deployment, text) = (parse(&text)?, changed.then_some(text));
    Ok(Plan { deployment, text, before: Some(found), expect: Expect::Existing })
}

/// Refuses to serve what is left where the file of a directory with data is lost: databases would be missing, and so would
/// the password.
fn found_again(file: &Path, held: &[String], settings: &Settings, said: bool) -> Result<(), Usage> {
    let own = |count| (0..count).map(keyspace).collect::<Vec<_>>();
    if held.is_empty() || said && own(settings.databases).starts_with(held) {
        return Ok(());
    }
    let wrong = format!(
        "{}: it is missing, and there is data here, of {}: which databases, port and password were served is not known",
        file.display(),
        held.join(", ")
    );
    let right = match u8::try_from(held.len()).is_ok_and(|count| own(count) == held) {
        true => format!(
            "put the file back, or say all of it again: --databases {}, and --port, --bind, --password-hash, --cert and --key \
             where they were given",
            held.len()
        ),
        false => "put the file back: it was an edited one".to_owned(),
    };
    Err(Usage(format!("{wrong}\n  {right}")))
}

/// What the keyspace of a database is called.
fn keyspace(index: u8) -> String {
    if index == 0 { "main".to_owned() } else { format!("db{index}") }
}

impl Wishes {
    /// An option that asks for something else than this deployment says.
    fn against(&self, deployment: &Deployment) -> Option<&'static str> {
        // Several are refused by themselves ([`the_node`]).
        let [node] = deployment.nodes() else { return None };
        let redis = node.redis.as_ref();
        let host = redis.and_then(|redis| redis.host().parse::<IpAddr>().ok());
        let security = deployment.security();
        let user = security.users.iter().find(|user| user.name == "default");
        let other_files = |(cert, key): &(String, String)| {
            let files = security.client.as_ref();
            files.is_none_or(|files| files.cert != Path::new(cert) || files.key != Path::new(key))
        };
        let wishes = [
            (self.port.is_some_and(|port| redis.is_none_or(|redis| redis.port() != port)), "--port"),
            (self.bind.is_some_and(|bind| host != Some(bind)), "--bind"),
            (
                self.databases.is_some_and(|count| deployment.keyspaces().len() != usize::from(count)),
                "--databases",
            ),
            (
                self.password
                    .as_deref()
                    .is_some_and(|hash| user.is_none_or(|user| user.password.phc() != hash)),
                "--password-hash",
            ),
            (self.certificate.as_ref().is_some_and(other_files), "--cert"),
        ];
        wishes.into_iter().find(|(other, _)| *other).map(|(_, option)| option)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        let bind = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Settings { bind, port: PORT, databases: 1, password: None, certificate: None, insecure: false }
    }
}

impl Settings {
    /// The settings of a file, where this verb has written it and nobody has changed it.
    fn of(deployment: &Deployment, text: &str) -> Option<Settings> {
        let [node] = deployment.nodes() else { return None };
        let redis = node.redis.as_ref()?;
        let security = deployment.security();
        let path = |path: &PathBuf| path.to_str().map(str::to_owned);
        let certificate = match &security.client {
            None => None,
            Some(files) => Some((path(&files.cert)?, path(&files.key)?)),
        };
        let settings = Settings {
            bind: redis.host().parse().ok()?,
            port: redis.port(),
            databases: u8::try_from(deployment.keyspaces().len()).ok()?,
            password: security.users.first().map(|user| user.password.phc().to_owned()),
            certificate,
            insecure: text.contains("\ninsecure = true\n"),
        };
        (settings.text() == text).then_some(settings)
    }

    fn with(self, wishes: Wishes) -> anyhow::Result<Settings> {
        let Wishes { port, bind, databases, password, certificate, insecure } = wishes;
        let held = self.databases;
        if let Some(fewer) = databases.filter(|databases| *databases < held) {
            let wrong = format!(
                "--databases {fewer}: there are {held}, and what the others hold would be served to nobody"
            );
            return Err(Usage(format!("{wrong}\n  leave it away, or name {held} or more")).into());
        }
        // Here, and not where the file is parsed: no such file has been written. The value is not shown: it may be the
        // password itself.
        if password.as_deref().is_some_and(|hash| PasswordHash::parse(hash).is_none()) {
            let wrong = "--password-hash, or ISOCHRONE_PASSWORD_HASH: it is no hash";
            let right = "give one made by `isochrone password`; in a shell put it into single quotes, or what follows each `$` is lost";
            return Err(Usage(format!("{wrong}\n  {right}")).into());
        }
        let bind = bind.unwrap_or(self.bind);
        let certificate = certificate.or(self.certificate);
        let settings = Settings {
            bind,
            port: port.unwrap_or(self.port),
            databases: databases.unwrap_or(held),
            password: password.or(self.password),
            // Remembered only where it says something: whoever has since gone back to loopback, or to TLS, has not said that
            // what comes after it is to be plain text.
            insecure: (self.insecure || insecure) && !bind.is_loopback() && certificate.is_none(),
            certificate,
        };
        let Settings { bind, .. } = &settings;
        if bind.is_loopback() {
            return Ok(settings);
        }
        if settings.password.is_none() {
            let wrong = format!("--bind {bind}: others can reach it, and there is no password");
            return Err(Usage(format!(
                "{wrong}\n  add --password-hash HASH, made by `isochrone password`; without one it serves loopback only"
            ))
            .into());
        }
        if settings.certificate.is_none() && !settings.insecure {
            let wrong = format!("--bind {bind}: others can read what passes, the password included");
            return Err(Usage(format!(
                "{wrong}\n  add --cert FILE --key FILE for TLS, or --insecure where plain text is meant"
            ))
            .into());
        }
        Ok(settings)
    }

    /// The file.
    fn text(&self) -> String {
        let address = std::net::SocketAddr::new(self.bind, self.port);
        let mut text = format!(
            "# One node for Redis clients, as `isochrone redis` has written it. Edited, it is run as it is, and not\n\
             # written again. To grow into a master with two witnesses: give this node a `listen` and an `http`, add\n\
             # two nodes behind it, name them below `replicas` as parameters = {{ spares = \"NAME, NAME\" }}, and start each with\n\
             # `isochrone node`, this one with --name {NAME} and this directory as --data (docs/operations.md).\n\
             \n\
             cluster = \"redis\"\n\
             \n\
             [[region]]\n\
             name = \"here\"\n\
             \n\
             [[node]]\n\
             name = \"{NAME}\"\n\
             region = \"here\"\n\
             redis = \"{address}\"\n\
             \n\
             [[keyspace]]\n\
             name = \"{}\"\n\
             protocol = \"curp\"\n\
             replicas = [\"{NAME}\"]\n",
            keyspace(0)
        );
        for index in 1..self.databases {
            let name = keyspace(index);
            let keyspace = format!("name = \"{name}\"\nindex = {index}\nprotocol = \"curp\"");
            // Writing to a string does not fail.
            let _ = write!(text, "\n[[keyspace]]\n{keyspace}\nreplicas = [\"{NAME}\"]\n");
        }
        text += "\n[journal]\nfsync = \"on\"\n";
        if self.insecure || self.certificate.is_some() {
            text += "\n[security]\n";
        }
        if self.insecure {
            text += "insecure = true\n";
        }
        if let Some((cert, key)) = &self.certificate {
            let _ = write!(text, "client_cert = {}\nclient_key = {}\n", quoted(cert), quoted(key));
        }
        if let Some(hash) = &self.password {
            let _ = write!(text, "\n[[security.user]]\nname = \"default\"\npassword = {}\n", quoted(hash));
        }
        text
    }
}

/// A string of TOML: one of JSON, but that DEL is escaped too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// The node that this verb runs: the only one.
fn the_node<'d>(deployment: &'d Deployment, file: &Path, dir: &Path) -> anyhow::Result<&'d Node> {
    let [node] = deployment.nodes() else {
        let wrong =
            format!("{} has {} nodes, and this runs one alone", file.display(), deployment.nodes().len());
        let name = deployment.node_named(NAME).map_or("NAME", |node| &node.name);
        let (file, dir) = (file.display(), dir.display());
        return Err(Usage(format!("{wrong}\n  isochrone node {file} --name {name} --data {dir}")).into());
    };
    if node.redis.is_none() {
        let wrong = format!("{}: node {:?} has no address for clients", file.display(), node.name);
        return Err(Usage(format!("{wrong}\n  give it redis = \"{}\"", Address::loopback(PORT))).into());
    }
    Ok(node)
}

/// Why a socket cannot be bound, with the option that helps. What passes by itself is no mistake in what was asked for, as with
/// `isochrone node`.
fn refused(error: StartError, file: &Path) -> anyhow::Error {
    let StartError::Bind { address, what: "Redis clients", cause } = error else { return node::start(error) };
    let (wrong, right, passes) = match cause.kind() {
        ErrorKind::AddrInUse => (
            "in use by another program".to_owned(),
            "stop it (a redis-server, or this very command?), or choose another with --port",
            false,
        ),
        ErrorKind::AddrNotAvailable => {
            ("not an address of this machine".to_owned(), "choose one of its own with --bind", true)
        }
        ErrorKind::PermissionDenied => {
            (cause.to_string(), "ports below 1024 need a privilege; choose another with --port", false)
        }
        _ if node::is_unresolved(&address, &cause) => {
            (format!("the name does not resolve: {cause}"), "choose an address with --bind", true)
        }
        _ => (cause.to_string(), "choose another with --bind and --port", false),
    };
    let edited = if file.exists() { format!(", or in {}", file.display()) } else { String::new() };
    let text = format!("{address}: {wrong}\n  {right}{edited}");
    if passes { anyhow::Error::msg(text) } else { Usage(text).into() }
}

/// Writes the file whole or not at all.
fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    let new = file.with_extension("toml.new");
    let write = || -> std::io::Result<()> {
        let mut out = fs::File::create(&new)?;
        // It may hold the hash of a password.
        out.set_permissions(fs::Permissions::from_mode(0o600))?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&new, file)?;
        fs::File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// A path that means the same from any directory, as the file needs it.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let found = std::path::absolute(path).with_context(|| format!("{}", path.display()))?;
    let text = found.to_str().map(str::to_owned);
    text.ok_or_else(|| Usage(format!("{}: not UTF-8\n  rename it", path.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str =
        "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$RdescudvJCsgt3ub+b0dWRWJTmaaJObG2kU3RVG3wQM";

    fn wishes() -> Wishes {
        Wishes { port: None, bind: None, databases: None, password: None, certificate: None, insecure: false }
    }

    #[test]
    fn what_passes_by_itself_is_no_mistake_in_what_was_asked_for() {
        let refused = |host: &str, cause: std::io::Error| {
            let (address, what) = (format!("{host}:6379"), "Redis clients");
            let error = refused(StartError::Bind { address, what, cause }, Path::new("no such file"));
            (crate::is_usage(&error), error.to_string())
        };
        let absent = refused("192.0.2.1", ErrorKind::AddrNotAvailable.into());
        let told = "192.0.2.1:6379: not an address of this machine\n  choose one of its own with --bind";
        assert_eq!(absent, (false, told.to_owned()));
        let unresolved = refused("db.example", std::io::Error::other("no such name"));
        let told =
            "db.example:6379: the name does not resolve: no such name\n  choose an address with --bind";
        assert_eq!(unresolved, (false, told.to_owned()));
        for kind in [ErrorKind::AddrInUse, ErrorKind::PermissionDenied] {
            assert!(refused("db.example", kind.into()).0, "{kind}");
        }
        assert!(refused("127.0.0.1", ErrorKind::Unsupported.into()).0);
    }

    #[test]
    fn every_file_it_writes_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let pair = || Some(("/etc/a \"b\".pem".to_owned(), "/etc/b.key".to_owned()));
        // An accent of its own, what turns the writing round, a backslash, and bytes that no terminal shows.
        let strange =
            || Some(("/etc/Cafe\u{301}/\u{202e}\\.pem".to_owned(), "/etc/\u{7f}\t\u{1}.key".to_owned()));
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        for (bind, databases, password, certificate, insecure) in [
            (None, None, None, None, false),
            (None, Some(16), Some(HASH), None, false),
            (Some("::1".parse().unwrap()), None, None, pair(), false),
            (Some(any), Some(2), Some(HASH), pair(), false),
            (None, None, None, strange(), false),
            (Some(any), None, Some(HASH), None, true),
        ] {
            let password = password.map(str::to_owned);
            let wishes = Wishes { port: Some(7000), bind, databases, password, certificate, insecure };
            let file = folder.path().join(FILE);
            let _ = fs::remove_file(&file);
            let first = plan(&file, &[], wishes).unwrap();
            let text = first.text.expect("a new file");
            save(&file, &text).unwrap();
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
            let again = plan(&file, &[], super::tests::wishes()).unwrap();
            assert!(again.text.is_none(), "nothing has changed:\n{text}");
            assert_eq!(again.deployment.nodes()[0].redis, first.deployment.nodes()[0].redis);
            assert_eq!(again.deployment.keyspaces().len(), usize::from(databases.unwrap_or(1)));
            let moved = plan(&file, &[], Wishes { port: Some(7001), ..super::tests::wishes() }).unwrap();
            assert_eq!(moved.text.expect("another port"), text.replace(":7000\"", ":7001\""));
        }
    }

    #[test]
    fn databases_may_be_added_and_none_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let of = |databases| plan(&file, &[], Wishes { databases: Some(databases), ..wishes() });
        save(&file, &Settings::default().text()).unwrap();
        let grown = of(3).unwrap();
        let indices: Vec<_> = grown.deployment.keyspaces().iter().map(|keyspace| keyspace.index).collect();
        assert_eq!(indices, [0, 1, 2]);
        save(&file, &grown.text.expect("two more")).unwrap();
        assert!(of(3).unwrap().text.is_none());
        let error = of(2).err().expect("refused").to_string();
        assert!(error.contains("there are 3") && error.contains("name 3 or more"), "{error}");

        // Without the file the data says how many there were, and nobody knows of a password.
        fs::remove_file(&file).unwrap();
        let held = ["main", "db1", "db2"].map(str::to_owned);
        let lost = |databases, held| plan(&file, held, Wishes { databases, ..wishes() });
        for databases in [None, Some(2)] {
            let error = lost(databases, &held).err().expect("refused").to_string();
            assert!(error.contains("of main, db1, db2") && error.contains("--databases 3"), "{error}");
        }
        assert_eq!(lost(Some(4), &held).unwrap().deployment.keyspaces().len(), 4);
        let error = lost(Some(1), &["mine".to_owned()]).err().expect("refused").to_string();
        assert!(error.contains("it was an edited one"), "{error}");
    }

    #[test]
    fn an_edited_file_is_run_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let text = Settings::default().text().replace("\"main\"", "\"mine\"");
        fs::write(&file, &text).unwrap();
        let plan_of = |wishes| plan(&file, &[], wishes);
        assert!(plan_of(wishes()).unwrap().text.is_none());
        let error = plan_of(Wishes { port: Some(7000), ..wishes() }).err().expect("refused").to_string();
        assert!(error.contains("was edited") && error.contains("leave --port away"), "{error}");
    }

    #[test]
    fn what_an_edited_file_says_too_may_be_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let pair = ("/etc/a.pem".to_owned(), "/etc/a.key".to_owned());
        let bind = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let said = || Wishes {
            port: Some(7000),
            bind: Some(bind),
            databases: Some(2),
            password: Some(HASH.to_owned()),
            certificate: Some(pair.clone()),
            insecure: false,
        };
        let settings = Settings::default().with(said()).unwrap();
        fs::write(&file, settings.text() + "# Ours.\n").unwrap();
        let found = plan(&file, &[], said()).unwrap();
        assert!(found.text.is_none());
        assert_eq!(found.deployment.nodes()[0].redis.as_ref().map(Address::port), Some(7000));
        let (other, hash) = (("/etc/b.pem".to_owned(), pair.1.clone()), HASH.replace("c29t", "c29u"));
        for (option, wishes) in [
            ("--port", Wishes { port: Some(7001), ..said() }),
            ("--bind", Wishes { bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), ..said() }),
            ("--databases", Wishes { databases: Some(3), ..said() }),
            ("--password-hash", Wishes { password: Some(hash), ..said() }),
            ("--cert", Wishes { certificate: Some(other), ..said() }),
        ] {
            let error = plan(&file, &[], wishes).err().expect("refused").to_string();
            assert!(error.starts_with(&format!("{option}: ")), "{error}");
        }
    }

    #[test]
    fn what_others_reach_needs_a_password_and_a_word_about_plain_text() {
        let open = |password: Option<&str>, insecure| {
            let bind = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let password = password.map(str::to_owned);
            Settings::default().with(Wishes { bind, password, insecure, ..wishes() })
        };
        assert!(open(None, true).unwrap_err().to_string().contains("there is no password"));
        assert!(open(Some(HASH), false).unwrap_err().to_string().contains("--cert FILE --key FILE"));
        let plain = open(Some(HASH), true).unwrap();
        // It holds until there is TLS, or nobody else who can read along.
        assert!(plain.clone().with(wishes()).unwrap().insecure);
        let pair = Some(("/etc/a.pem".to_owned(), "/etc/a.key".to_owned()));
        let encrypted = plain.clone().with(Wishes { certificate: pair, ..wishes() }).unwrap();
        let bind = |bind: Ipv4Addr| Wishes { bind: Some(IpAddr::V4(bind)), ..wishes() };
        let alone = plain.with(bind(Ipv4Addr::LOCALHOST)).unwrap();
        assert!(!encrypted.insecure && !alone.insecure);
        let again = alone.with(bind(Ipv4Addr::UNSPECIFIED)).unwrap_err().to_string();
        assert!(again.contains("--insecure where plain text is meant"), "{again}");
    }
}
