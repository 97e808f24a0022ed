//! `isochrone cert` and `isochrone password`: what the [security] section of a deployment names.

use crate::arguments::Cert;
use crate::output::{another_directory, print_text, say};
use crate::{Status, Usage, protocols};
use anyhow::{Context, bail};
use isochrone_core::{Deployment, deployment::Node};
use isochrone_node::cert::{self, AuthorityError, Issued};
use isochrone_node::gateway::Secret;
use isochrone_node::security::hash_password;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Makes the certificates of a deployment: an authority, and two pairs for each node, one to show to its peers and
/// one to show to its clients.
pub(crate) fn run(arguments: Cert) -> anyhow::Result<Status> {
    let Cert { file, out, days } = arguments;
    // The file may already name the certificates that are about to be made, or not yet.
    let deployment = Deployment::load(&file, &protocols::known().insecure(true))?;
    protocols::check(&deployment)?;
    fs::create_dir_all(&out).map_err(|cause| {
        let right = another_directory(&cause);
        Usage(format!("--out {}: cannot make the directory: {cause}\n  {right}", out.display()))
    })?;
    let authority = authority(&out, deployment.cluster(), days)?;
    for node in deployment.nodes() {
        let cluster = deployment.cluster();
        let id = deployment.cluster_id();
        let peer = cert::node(&authority, cluster, id, node.id, &node.name, days)?;
        keep(&out, &node.name, &peer)?;
        let server = cert::server(&authority, cluster, &node.name, hosts(node), days)?;
        keep(&out, &format!("{}-client", node.name), &server)?;
    }
    print_text(&format!(
        "{}: certificates for {} nodes, good for {days} days\n\n{}\n",
        out.display(),
        deployment.nodes().len(),
        advice(&file, &out)
    ))?;
    Ok(Status::Held)
}

/// Prints the hash of a password for the deployment file.
pub(crate) fn password() -> anyhow::Result<Status> {
    let password = if std::io::stdin().is_terminal() { typed()? } else { piped()? };
    if password.expose().is_empty() {
        return Err(Usage(
            "the password is empty\n  type it, or pipe it in: head -c 18 /dev/urandom | base64 | tee secret | isochrone password"
                .to_owned(),
        )
        .into());
    }
    print_text(&format!("{}\n", hash_password(&password).map_err(anyhow::Error::msg)?))?;
    Ok(Status::Held)
}

/// The names by which clients reach a node: what the file says, and loopback for those beside it.
fn hosts(node: &Node) -> Vec<String> {
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    for address in [&node.redis, &node.grpc, &node.peer].into_iter().flatten() {
        let any = matches!(address.host(), "0.0.0.0" | "::");
        if !any && !hosts.iter().any(|host| host == address.host()) {
            hosts.push(address.host().to_owned());
        }
    }
    hosts
}

/// The authority in `out`, or a new one. The first line of its file names the cluster, so that one cluster's
/// authority does not sign for another.
fn authority(out: &Path, cluster: &str, days: u32) -> anyhow::Result<Issued> {
    let (ca, key) = (out.join("ca.pem"), out.join("ca.key"));
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
            let new = cert::authority(cluster, days.saturating_mul(10).clamp(days, 36_500))?;
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
        Usage(format!("{wrong}\n  put it back, or run this as the user who may read it; {ANEW}"))
    })?;
    let authority = Issued { certificate, key: text };
    cert::check(&authority).map_err(|wrong| {
        let file = if matches!(wrong, AuthorityError::Certificate(_)) { &ca } else { &key };
        Usage(format!(
            "{}: {wrong}\n  put back the two files as they were made together; {ANEW}",
            file.display()
        ))
    })?;
    Ok(authority)
}

/// What is left where an authority is lost.
const ANEW: &str = "where they are lost, an authority in another --out signs all pairs anew, and every node and client gets those";

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

fn advice(file: &Path, out: &Path) -> String {
    let (given, out) = (out.display(), seen_from(file, out));
    let out = out.display();
    format!(
        "Give each node ca.pem and its own four files, keep ca.key off the nodes, and say in the deployment:\n\n\
         [security]\n\
         peer_ca = \"{out}/ca.pem\"\n\
         peer_cert = \"{out}/{{node}}.pem\"\n\
         peer_key = \"{out}/{{node}}.key\"\n\
         client_cert = \"{out}/{{node}}-client.pem\"\n\
         client_key = \"{out}/{{node}}-client.key\"\n\n\
         Clients trust ca.pem: redis-cli --tls --cacert {given}/ca.pem"
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
    use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers, read};
    use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
    // Whoever sees no prompt types all the same.
    let _ = write!(std::io::stderr(), "password: ");
    enable_raw_mode()?;
    let mut text = String::new();
    let done = loop {
        match read() {
            Err(error) => break Err(error.into()),
            Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Enter => break Ok(()),
                KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                    break Err(anyhow::anyhow!("no password was given"));
                }
                KeyCode::Char(letter) => text.push(letter),
                KeyCode::Backspace => drop(text.pop()),
                _ => {}
            },
            Ok(_) => {}
        }
    };
    disable_raw_mode()?;
    say("");
    let secret = Secret::new(text.into_bytes());
    done.map(|()| secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deploy(folder: &Path, cluster: &str) -> Cert {
        let file = folder.join("cluster.toml");
        let text = format!(
            "cluster = \"{cluster}\"\n[[region]]\nname = \"A\"\n[[node]]\nname = \"a1\"\nregion = \"A\"\n\
             listen = \"10.0.0.1:7000\"\nredis = \"10.0.0.1:6379\"\n\
             [[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplication = 1\n"
        );
        fs::write(&file, text).unwrap();
        Cert { file, out: folder.join("certs"), days: 30 }
    }

    #[test]
    fn the_pairs_can_be_used_and_keys_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join("certs").join(name);
        fs::create_dir(folder.path().join("certs")).unwrap();
        fs::write(file("a1.new"), "left by a run that was interrupted").unwrap();
        run(deploy(folder.path(), "shop")).unwrap();
        isochrone_node::security::peer_tls(&file("ca.pem"), &file("a1.pem"), &file("a1.key")).unwrap();
        isochrone_node::security::client_tls(&file("a1-client.pem"), &file("a1-client.key")).unwrap();
        #[cfg(unix)]
        for name in ["ca.key", "a1.key", "a1-client.key"] {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(file(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
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
