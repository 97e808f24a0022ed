//! `isochrone cert` and `isochrone password`: what the [security] section of a deployment names.

use crate::arguments::{Cert, Format, Password};
use crate::output::{another_directory, make_directory, print_json, print_text, say};
use crate::{Status, Usage, protocols};
use anyhow::{Context, bail};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use isochrone_core::{Deployment, deployment::Node};
use isochrone_node::cert::{self, AuthorityError, End, Issued};
use isochrone_node::gateway::Secret;
use isochrone_node::security::hash_password;
use rustls::pki_types::ServerName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The authority's files, without their endings.
const AUTHORITY: &str = "ca";

/// What `--format json` prints.
#[derive(Debug, Serialize)]
struct Made {
    /// As it was given.
    directory: String,
    /// For how long the nodes' pairs are good.
    days: u32,
    /// Its key is for no node.
    authority: Pair,
    nodes: Vec<Pairs>,
    /// The section [security] of the deployment.
    security: BTreeMap<&'static str, String>,
}

/// A node's.
#[derive(Debug, Serialize)]
struct Pairs {
    node: String,
    peers: Pair,
    clients: Pair,
}

/// Two files.
#[derive(Debug, Serialize)]
struct Pair {
    certificate: String,
    key: String,
}

impl Pair {
    /// Of these names, without their endings.
    fn of(out: &Path, stem: &str) -> Pair {
        let [certificate, key] =
            ["pem", "key"].map(|end| out.join(format!("{stem}.{end}")).display().to_string());
        Pair { certificate, key }
    }
}

/// Makes the certificates of a deployment: an authority, and two pairs for each node, one to show to its peers and
/// one to show to its clients.
pub(crate) fn run(arguments: Cert) -> anyhow::Result<Status> {
    let Cert { file, out, days, hosts: more, format } = arguments;
    // The file may already name the certificates that are about to be made, or not yet.
    let deployment = Deployment::load(&file, &protocols::known().insecure(true))?;
    protocols::check(&deployment)?;
    apart(&file, deployment.nodes())?;
    let more = of_nodes(&file, deployment.nodes(), &more)?;
    make_directory("out", &out)?;
    let authority = authority(&out, deployment.cluster(), days)?;
    for node in deployment.nodes() {
        let cluster = deployment.cluster();
        let id = deployment.cluster_id();
        let [for_peers, for_clients] = stems(node);
        let peer = cert::node(&authority, cluster, id, node.id, &node.name, days)?;
        keep(&out, &for_peers, &peer)?;
        let server = cert::server(&authority, cluster, &node.name, hosts(node, &more), days)?;
        keep(&out, &for_clients, &server)?;
    }
    match format {
        Format::Json => print_json(&made(&file, &out, days, deployment.nodes()))?,
        Format::Text => print_text(&format!(
            "{}: certificates for {} nodes, good for {days} days\n\n{}\n",
            out.display(),
            deployment.nodes().len(),
            advice(&file, &out)
        ))?,
    }
    Ok(Status::Held)
}

fn made(file: &Path, out: &Path, days: u32, nodes: &[Node]) -> Made {
    let pairs = |node: &Node| {
        let [peers, clients] = stems(node).map(|stem| Pair::of(out, &stem));
        Pairs { node: node.name.clone(), peers, clients }
    };
    Made {
        directory: out.display().to_string(),
        days,
        authority: Pair::of(out, AUTHORITY),
        nodes: nodes.iter().map(pairs).collect(),
        security: settings(&seen_from(file, out)).into_iter().collect(),
    }
}

/// Prints the hash of a password for the deployment file.
pub(crate) fn password(arguments: &Password) -> anyhow::Result<Status> {
    let password = if std::io::stdin().is_terminal() { typed()? } else { piped()? };
    if password.expose().is_empty() {
        return Err(Usage(
            "the password is empty\n  type it, or pipe it in: head -c 18 /dev/urandom | base64 | tee secret | isochrone password"
                .to_owned(),
        )
        .into());
    }
    let hash = hash_password(&password).map_err(anyhow::Error::msg)?;
    match arguments.format {
        Format::Json => print_json(&BTreeMap::from([("hash", hash)]))?,
        Format::Text => print_text(&format!("{hash}\n"))?,
    }
    Ok(Status::Held)
}

/// The files of a node's two pairs, without their endings: what it shows to its peers, and to its clients.
fn stems(node: &Node) -> [String; 2] {
    [node.name.clone(), format!("{}-client", node.name)]
}

/// Refuses names of nodes with which a pair would be written over another, or over the authority.
fn apart(file: &Path, nodes: &[Node]) -> Result<(), Usage> {
    let mut owners = BTreeMap::from([(AUTHORITY.to_owned(), "the authority's".to_owned())]);
    for node in nodes {
        let name = &node.name;
        for (stem, met) in stems(node).into_iter().zip(["peers", "clients"]) {
            if let Some(other) = owners.insert(stem.clone(), format!("that of node {name:?} for {met}")) {
                let wrong = format!(
                    "{}: node {name:?}: its pair for {met} would be {stem}.pem and {stem}.key, and so would be {other}",
                    file.display()
                );
                let right =
                    format!("give it a name that is not {AUTHORITY}, nor that of another with -client");
                return Err(Usage(format!("{wrong}\n  {right}")));
            }
        }
    }
    Ok(())
}

/// Each host of --host, with the node that clients reach by it.
fn of_nodes<'a>(file: &Path, nodes: &[Node], hosts: &'a [String]) -> Result<Vec<(&'a str, &'a str)>, Usage> {
    let of_node = |text: &'a String| {
        let wrong = |why: &str, right: &str| Usage(format!("--host {text}: {why}\n  {right}"));
        let (name, host) = text.rsplit_once('=').ok_or_else(|| {
            wrong("there is no `=`", "write NAME=HOST: a node, and a host by which clients reach it")
        })?;
        if !nodes.iter().any(|node| node.name == name) {
            let known: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
            let why = format!("{} has no node {name:?}", file.display());
            return Err(wrong(&why, &format!("use one of {}", known.join(", "))));
        }
        if !is_host(host) {
            let right = "write a DNS name, *.example.com for all below one, or an IP address, without a port";
            return Err(wrong("no certificate has such a host", right));
        }
        Ok((name, host))
    };
    hosts.iter().map(of_node).collect()
}

/// Whether a certificate may be made for this host, such that clients take it for theirs.
fn is_host(text: &str) -> bool {
    let host = text.strip_prefix("*.").filter(|rest| rest.parse::<IpAddr>().is_err()).unwrap_or(text);
    !host.ends_with('.') && ServerName::try_from(host).is_ok()
}

/// The hosts by which clients reach a node: loopback for those beside it, its name where that can be one, what the file says,
/// and those of `more` that are its.
fn hosts(node: &Node, more: &[(&str, &str)]) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let own = Some(node.name.as_str()).filter(|name| is_host(name));
    let addresses = [&node.redis, &node.grpc, &node.peer].into_iter().flatten();
    let given = addresses.map(|address| address.host()).filter(|host| !matches!(*host, "0.0.0.0" | "::"));
    let more = more.iter().filter(|(name, _)| *name == node.name).map(|(_, host)| *host);
    for host in own.into_iter().chain(given).chain(more) {
        if !hosts.iter().any(|known| known == host) {
            hosts.push(host.to_owned());
        }
    }
    hosts
}

/// The authority in `out`, or a new one. The first line of its file names the cluster, so that one cluster's
/// authority does not sign for another.
fn authority(out: &Path, cluster: &str, days: u32) -> anyhow::Result<Issued> {
    let [ca, key] = ["pem", "key"].map(|end| out.join(format!("{AUTHORITY}.{end}")));
    let head = format!("Isochrone authority of {cluster}\n");
    let certificate = match fs::read_to_string(&ca) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if key.exists() {
                let wrong = format!("{}: a key without its certificate {}", key.display(), ca.display());
                bail!(Usage(format!(
                    "{wrong}\n  put the certificate back, or move the key away for a new authority"
                )));
            }
            // It outlives what it signs: exchanging it means exchanging every pair.
            let new = cert::authority(cluster, days.saturating_mul(10))?;
            write(&key, &new.key, true)?;
            write(&ca, &format!("{head}{}", new.certificate), false)?;
            return Ok(new);
        }
        Err(error) => {
            let wrong = format!("{}: cannot be read: {error}", ca.display());
            bail!(Usage(format!("{wrong}\n  run this as the user who made it, or choose another --out")));
        }
    };
    if !certificate.starts_with(&head) {
        let wrong = format!("{}: not the authority of cluster {cluster:?}", ca.display());
        bail!(Usage(format!("{wrong}\n  choose another --out, or correct `cluster` in the file")));
    }
    let text = fs::read_to_string(&key).map_err(|error| {
        let wrong =
            format!("{}: cannot be read, and without it nothing can be signed: {error}", key.display());
        Usage(format!(
            "{wrong}\n  put it back, or run this as the user who may read it; where they are lost, {ANEW}"
        ))
    })?;
    let authority = Issued { certificate, key: text };
    let end = cert::check(&authority).map_err(|wrong| {
        let file = if matches!(wrong, AuthorityError::Certificate(_)) { &ca } else { &key };
        Usage(format!(
            "{}: {wrong}\n  put back the two files as they were made together; where they are lost, {ANEW}",
            file.display()
        ))
    })?;
    outlives(&ca, &end, days)?;
    Ok(authority)
}

/// Refuses an authority that has ended, or does before what it is to sign: who checks one checks the other.
fn outlives(ca: &Path, End { at, date }: &End, days: u32) -> Result<(), Usage> {
    let ca = ca.display();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // What is signed is made a moment later.
    let left = u64::try_from(*at).unwrap_or(0).saturating_sub(now + 60) / (24 * 60 * 60);
    if left == 0 {
        let wrong = format!("{ca}: this authority ends on {date}, and with it all that it signs");
        return Err(Usage(format!("{wrong}\n  {ANEW}")));
    }
    if u64::from(days) > left {
        let wrong = format!("--days {days}: {ca} ends on {date}, and with it all that it signs");
        return Err(Usage(format!("{wrong}\n  use --days {left}, or fewer; {ANEW}")));
    }
    Ok(())
}

/// What is left where an authority is lost, or ends.
const ANEW: &str = "an authority in another --out signs all pairs anew, and every node and client gets those";

fn keep(out: &Path, name: &str, pair: &Issued) -> anyhow::Result<()> {
    write(&out.join(format!("{name}.key")), &pair.key, true)?;
    write(&out.join(format!("{name}.pem")), &pair.certificate, false)
}

/// Writes beside and renames, so that a node that starts meanwhile finds a whole file.
fn write(path: &Path, text: &str, secret: bool) -> anyhow::Result<()> {
    let beside = path.with_extension("new");
    let cannot = |cause: std::io::Error| {
        Usage(format!("{}: cannot be written: {cause}\n  {}", path.display(), another_directory(&cause)))
    };
    let mut options = OpenOptions::new();
    // What an interrupted run has left may be readable for others.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(cannot(error).into()),
        _ => options.write(true).create_new(true),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if secret { 0o600 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _ = secret;
    let mut file = options.open(&beside).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(cannot)?;
    file.sync_all().map_err(cannot)?;
    Ok(fs::rename(&beside, path).map_err(cannot)?)
}

/// How a deployment file names a folder: from where the file is, if the folder lies there.
fn seen_from(file: &Path, out: &Path) -> PathBuf {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(parent), Ok(out)) = (parent.canonicalize(), out.canonicalize()) else { return out.to_owned() };
    out.strip_prefix(parent).map_or_else(|_| out.clone(), Path::to_owned)
}

/// What [security] says of files in this folder; `{node}` stands for the name of each.
fn settings(out: &Path) -> [(&'static str, String); 5] {
    [
        ("peer_ca", "ca.pem"),
        ("peer_cert", "{node}.pem"),
        ("peer_key", "{node}.key"),
        ("client_cert", "{node}-client.pem"),
        ("client_key", "{node}-client.key"),
    ]
    .map(|(name, file)| (name, format!("{}/{file}", out.display())))
}

fn advice(file: &Path, out: &Path) -> String {
    let settings = settings(&seen_from(file, out)).map(|(name, path)| format!("{name} = \"{path}\"\n"));
    format!(
        "Give each node ca.pem and its own four files, keep ca.key off the nodes, and say in the deployment:\n\n\
         [security]\n{}\n\
         Clients trust ca.pem: redis-cli --tls --cacert {}/ca.pem",
        settings.concat(),
        out.display()
    )
}

fn piped() -> anyhow::Result<Secret> {
    let mut line = Vec::new();
    std::io::stdin().lock().read_until(b'\n', &mut line).context("the password cannot be read")?;
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(Secret::new(line))
}

/// Reads a password from the terminal without showing it.
fn typed() -> anyhow::Result<Secret> {
    use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
    // Whoever sees no prompt types all the same.
    let _ = write!(std::io::stderr(), "password: ");
    enable_raw_mode()?;
    let mut text = String::new();
    let done = loop {
        match event::read() {
            Err(error) => break Err(error.into()),
            Ok(Event::Key(key)) => match press(&mut text, key) {
                Typing::GoesOn => {}
                Typing::Done => break Ok(()),
                Typing::GivenUp => break Err(anyhow::anyhow!("no password was given")),
            },
            Ok(_) => {}
        }
    };
    disable_raw_mode()?;
    say("");
    let secret = Secret::new(text.into_bytes());
    done.map(|()| secret)
}

/// Whether more of a password is to come.
#[derive(PartialEq, Eq, Debug)]
enum Typing {
    GoesOn,
    Done,
    GivenUp,
}

/// What a key does to what has been typed: as at a terminal's own prompt, where what is not seen is one word.
fn press(text: &mut String, key: KeyEvent) -> Typing {
    if key.kind == KeyEventKind::Release {
        return Typing::GoesOn;
    }
    match key.code {
        KeyCode::Enter => return Typing::Done,
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(letter) if key.modifiers.contains(KeyModifiers::CONTROL) => match letter {
            'c' | 'd' => return Typing::GivenUp,
            'h' => drop(text.pop()),
            'u' | 'w' => text.clear(),
            _ => {}
        },
        KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::ALT) => text.push(letter),
        _ => {}
    }
    Typing::GoesOn
}

#[cfg(test)]
mod tests {
    use super::*;
    use isochrone_node::security;
    use rustls::client::verify_server_name;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::server::ParsedCertificate;

    fn deploy(folder: &Path, cluster: &str) -> Cert {
        let file = folder.join("cluster.toml");
        let text = format!(
            "cluster = \"{cluster}\"\n[[region]]\nname = \"A\"\n[[node]]\nname = \"a1\"\nregion = \"A\"\n\
             listen = \"10.0.0.1:7000\"\nredis = \"10.0.0.1:6379\"\n\
             [[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplication = 1\n"
        );
        fs::write(&file, text).unwrap();
        Cert { file, out: folder.join("certs"), days: 30, hosts: Vec::new(), format: Format::Text }
    }

    #[test]
    fn the_pairs_can_be_used_and_keys_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join("certs").join(name);
        fs::create_dir(folder.path().join("certs")).unwrap();
        fs::write(file("a1.new"), "left by a run that was interrupted").unwrap();
        run(deploy(folder.path(), "shop")).unwrap();
        let deployment =
            Deployment::load(&folder.path().join("cluster.toml"), &protocols::known().insecure(true))
                .unwrap();
        let name = security::peer_name(deployment.nodes()[0].id, deployment.cluster_id());
        security::peer_tls(&file("ca.pem"), &file("a1.pem"), &file("a1.key"), &name).unwrap();
        security::client_tls(&file("a1-client.pem"), &file("a1-client.key")).unwrap();
        #[cfg(unix)]
        for name in ["ca.key", "a1.key", "a1-client.key"] {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(file(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn what_was_made_is_told_to_people_and_to_programs() {
        let folder = tempfile::tempdir().unwrap();
        let Cert { file, out, days, .. } = deploy(folder.path(), "shop");
        fs::create_dir(&out).unwrap();
        expect_test::expect![[r#"
            Give each node ca.pem and its own four files, keep ca.key off the nodes, and say in the deployment:

            [security]
            peer_ca = "certs/ca.pem"
            peer_cert = "certs/{node}.pem"
            peer_key = "certs/{node}.key"
            client_cert = "certs/{node}-client.pem"
            client_key = "certs/{node}-client.key"

            Clients trust ca.pem: redis-cli --tls --cacert FOLDER/certs/ca.pem"#]]
        .assert_eq(&advice(&file, &out).replace(folder.path().to_str().unwrap(), "FOLDER"));
        let deployment = Deployment::load(&file, &protocols::known().insecure(true)).unwrap();
        let told = serde_json::to_string(&made(&file, &out, days, deployment.nodes())).unwrap();
        expect_test::expect![[r#"{"directory":"FOLDER/certs","days":30,"authority":{"certificate":"FOLDER/certs/ca.pem","key":"FOLDER/certs/ca.key"},"nodes":[{"node":"a1","peers":{"certificate":"FOLDER/certs/a1.pem","key":"FOLDER/certs/a1.key"},"clients":{"certificate":"FOLDER/certs/a1-client.pem","key":"FOLDER/certs/a1-client.key"}}],"security":{"client_cert":"certs/{node}-client.pem","client_key":"certs/{node}-client.key","peer_ca":"certs/ca.pem","peer_cert":"certs/{node}.pem","peer_key":"certs/{node}.key"}}"#]]
        .assert_eq(&told.replace(folder.path().to_str().unwrap(), "FOLDER"));
    }

    #[test]
    fn what_clients_are_shown_is_good_for_the_hosts_by_which_they_reach_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let with = |hosts: &[&str]| Cert {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..deploy(folder.path(), "shop")
        };
        for (host, wrong) in [
            ("redis.example", "--host redis.example: there is no `=`\n  write NAME=HOST"),
            ("b=redis.example", "has no node \"b\"\n  use one of a1"),
            ("a1=redis.example:6379", "no certificate has such a host\n  write a DNS name"),
            ("a1=redis.example.", "no certificate has such a host"),
            ("a1=", "no certificate has such a host"),
        ] {
            let arguments = with(&[host]);
            let (out, error) = (arguments.out.clone(), run(arguments).unwrap_err());
            assert!(error.is::<Usage>() && !out.exists(), "{error}");
            assert!(error.to_string().contains(wrong), "{error}");
        }
        run(with(&["a1=redis.example", "a1=*.shop.example", "a1=2001:db8::1", "a1=10.0.0.1"])).unwrap();
        let shown = CertificateDer::from_pem_file(folder.path().join("certs/a1-client.pem")).unwrap();
        let parsed = ParsedCertificate::try_from(&shown).unwrap();
        let good = |host: &str| verify_server_name(&parsed, &ServerName::try_from(host).unwrap()).is_ok();
        for host in ["localhost", "a1", "10.0.0.1", "redis.example", "eu.shop.example", "2001:db8::1"] {
            assert!(good(host), "{host}");
        }
        assert!(!good("elsewhere.example") && !good("shop.example"));
    }

    #[test]
    fn a_name_that_no_host_can_have_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| {
            let Cert { file, .. } = deploy(folder.path(), "shop");
            let text = fs::read_to_string(&file).unwrap().replace("\"a1\"", &format!("\"{name}\""));
            fs::write(&file, text).unwrap();
            let deployment = Deployment::load(&file, &protocols::known().insecure(true)).unwrap();
            hosts(&deployment.nodes()[0], &[(name, "x.example"), ("other", "y.example")])
        };
        assert_eq!(of("va1"), ["localhost", "127.0.0.1", "::1", "va1", "10.0.0.1", "x.example"]);
        assert_eq!(of("va1."), ["localhost", "127.0.0.1", "::1", "10.0.0.1", "x.example"]);
    }

    #[test]
    fn no_pair_is_written_over_another_or_over_the_authority() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |names: &[&str]| {
            let arguments = deploy(folder.path(), "shop");
            let node = |(at, name): (usize, &&str)| {
                format!("[[node]]\nname = \"{name}\"\nregion = \"A\"\nlisten = \"10.0.0.1:{}\"\n", 7001 + at)
            };
            let text = fs::read_to_string(&arguments.file).unwrap();
            let more: String = names.iter().enumerate().map(node).collect();
            fs::write(&arguments.file, text.replace("[[keyspace]]", &format!("{more}[[keyspace]]"))).unwrap();
            let (out, error) = (arguments.out.clone(), run(arguments).unwrap_err());
            assert!(error.is::<Usage>() && !out.exists(), "{error}");
            error.to_string()
        };
        let ca = refused(&["ca"]);
        assert!(
            ca.contains(
                "node \"ca\": its pair for peers would be ca.pem and ca.key, and so would be the authority's"
            ),
            "{ca}"
        );
        for names in [&["b", "b-client"], &["b-client", "b"]] {
            let error = refused(names);
            assert!(
                error.contains("would be b-client.pem and b-client.key, and so would be that of node \"b"),
                "{error}"
            );
            assert!(error.contains("give it a name that is not ca"), "{error}");
        }
    }

    #[test]
    fn no_pair_outlives_its_authority() {
        let folder = tempfile::tempdir().unwrap();
        let of = |good_for: u32, days: u32| {
            let arguments = Cert { days, ..deploy(folder.path(), "shop") };
            fs::create_dir_all(&arguments.out).unwrap();
            let authority = cert::authority("shop", good_for).unwrap();
            fs::write(arguments.out.join("ca.key"), &authority.key).unwrap();
            let text = format!("Isochrone authority of shop\n{}", authority.certificate);
            fs::write(arguments.out.join("ca.pem"), text).unwrap();
            let End { date, .. } = cert::check(&authority).unwrap();
            (run(arguments).map_err(|error| error.to_string()), date)
        };
        let (done, _) = of(31, 30);
        assert_eq!(done.unwrap(), Status::Held);
        let (done, date) = of(10, 30);
        let error = done.unwrap_err();
        assert!(
            error.starts_with("--days 30: ") && error.contains(&format!("ca.pem ends on {date}")),
            "{error}"
        );
        assert!(error.contains("use --days 9, or fewer; an authority in another --out"), "{error}");
        let (done, date) = of(0, 1);
        let error = done.unwrap_err();
        assert!(error.contains(&format!("ca.pem: this authority ends on {date}")), "{error}");
    }

    #[test]
    fn keys_that_take_back_leave_nothing_in_a_password() {
        let typed = |keys: &[(KeyModifiers, KeyCode)]| {
            let mut text = String::new();
            let press = |(modifiers, code): &(KeyModifiers, KeyCode)| {
                press(&mut text, KeyEvent::new(*code, *modifiers))
            };
            let last = keys.iter().map(press).last();
            (text, last)
        };
        let plain = |code| (KeyModifiers::NONE, code);
        let letter = |letter| plain(KeyCode::Char(letter));
        let control = |letter| (KeyModifiers::CONTROL, KeyCode::Char(letter));
        let alt = |letter| (KeyModifiers::ALT, KeyCode::Char(letter));
        let shift = (KeyModifiers::SHIFT, KeyCode::Char('B'));
        let on = |text: &str| (text.to_owned(), Some(Typing::GoesOn));
        assert_eq!(typed(&[letter('a'), shift]), on("aB"));
        for back in [control('h'), plain(KeyCode::Backspace)] {
            assert_eq!(typed(&[back, letter('a'), letter('b'), back]), on("a"));
        }
        for all in [control('u'), control('w')] {
            assert_eq!(typed(&[letter('a'), letter(' '), letter('b'), all, letter('c')]), on("c"));
        }
        for nothing in
            [control('a'), control('j'), alt('a'), alt('u'), plain(KeyCode::Tab), plain(KeyCode::Left)]
        {
            assert_eq!(typed(&[letter('a'), nothing]), on("a"));
        }
        let enter = plain(KeyCode::Enter);
        assert_eq!(typed(&[letter('a'), enter]), ("a".to_owned(), Some(Typing::Done)));
        for end in [control('c'), control('d')] {
            assert_eq!(typed(&[letter('a'), end]).1, Some(Typing::GivenUp));
        }
        let mut text = String::new();
        let released = KeyEvent::new_with_kind(KeyCode::Enter, KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!((press(&mut text, released), text.as_str()), (Typing::GoesOn, ""));
    }

    #[test]
    fn an_authority_is_used_again_but_not_for_another_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("certs/ca.pem");
        run(deploy(folder.path(), "shop")).unwrap();
        let first = fs::read(&ca).unwrap();
        run(deploy(folder.path(), "shop")).unwrap();
        assert_eq!(first, fs::read(&ca).unwrap());
        let error = run(deploy(folder.path(), "other")).unwrap_err().to_string();
        assert!(error.contains("not the authority of cluster \"other\""), "{error}");
        let key = folder.path().join("certs/ca.key");
        let another = cert::authority("shop", 30).unwrap().key;
        for (text, wrong) in [("nothing", "it holds no private key"), (&another, "it is not the key of")] {
            fs::write(&key, text).unwrap();
            let error = run(deploy(folder.path(), "shop")).unwrap_err().to_string();
            assert!(error.contains(&format!("ca.key: {wrong}")), "{error}");
        }
        fs::remove_file(key).unwrap();
        let error = run(deploy(folder.path(), "shop")).unwrap_err().to_string();
        assert!(error.contains("put it back"), "{error}");
    }
}
