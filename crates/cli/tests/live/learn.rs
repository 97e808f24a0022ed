//! `isochrone learn`: what is printed, what files hold, and what is said of wrong input.

use super::processes::{isochrone, outcome};
use expect_test::{Expect, expect};
use isochrone_core::Random;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Two classes that one feature tells apart, in a file that counts from 1.
fn samples(folder: &Path) -> String {
    let text: String = (0..60)
        .map(|row| {
            let (label, sign) = if row % 3 == 0 { (4, -1.0) } else { (7, 1.0) };
            format!("{label} 1:{} {}:1 # row {row}\n", sign * (1.0 + f64::from(row % 5)), row % 4 + 2)
        })
        .collect();
    let path = folder.join("data.svm");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn at(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// Runs `isochrone learn`; its status, and what it printed without the folder's path and without times.
fn learn(folder: &Path, words: &[&str]) -> (i32, String) {
    let (status, out, err) = outcome([&["learn"], words].concat());
    let timed = ["reading ", "planning ", "learning ", "waits "];
    let all = (out + &err).replace(folder.to_str().unwrap(), "FOLDER");
    let lines = all.lines().filter(|line| !timed.iter().any(|name| line.starts_with(name)));
    (status, lines.map(|line| format!("{}\n", line.trim_end())).collect())
}

fn says(folder: &Path, words: &[&str], status: i32, expected: Expect) {
    let (found, said) = learn(folder, words);
    expected.assert_eq(&said);
    assert_eq!(found, status, "{said}");
}

/// The same samples as pyarrow writes them, Parquet or Arrow.
fn table(folder: &Path, name: &str) -> String {
    let to = at(folder, &format!("data.{name}"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../learn/data/pyarrow.{name}"));
    fs::copy(from, &to).unwrap();
    to
}

#[test]
fn parquet_and_arrow_are_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (text, model) = (samples(folder), at(folder, "a.model"));
    let table = table(folder, "parquet");
    let arrow = self::table(folder, "arrow");
    let trained = |data: &str| learn(folder, &["train", data, "--model", &model, "--threads", "2"]);
    let by_text = trained(&text);
    let predicted = |data: &str| learn(folder, &["predict", data, "--model", &model, "--what", "decision"]);
    let decisions = predicted(&text);
    // Whichever it was trained from, a model knows features by what they are and not by how a file counts them.
    for table in [&table, &arrow] {
        assert_eq!(predicted(table), decisions);
        assert_eq!(trained(table), by_text);
        assert_eq!(predicted(table), decisions);
    }
    assert_eq!(decisions.1.lines().count(), 60);
    let batched = [&text, &table, &arrow].map(|data| {
        let said = learn(folder, &["train", data, "--model", &model, "--batch-rows", "25"]);
        assert_eq!(said.0, 0, "{}", said.1);
        learn(folder, &["predict", &text, "--model", &model, "--what", "decision", "--base", "1"])
    });
    assert!(batched[0] == batched[1] && batched[1] == batched[2]);
    says(
        folder,
        &["evaluate", &table, "--model", &model],
        0,
        expect![[r#"
        samples                        60
        accuracy                 1.000000
        precision                1.000000
        recall                   1.000000
        area under curve         1.000000
    "#]],
    );
    for (words, expected) in [
        (
            &["--label", "day"][..],
            expect![[r#"
            isochrone: FOLDER/data.parquet: column `day` has BYTE_ARRAY: numbers are wanted
        "#]],
        ),
        (
            &["--indices", "words"],
            expect![[r#"
            isochrone: FOLDER/data.parquet: there is no column `words`: it has day, label, indices, values
        "#]],
        ),
        (
            &["--base", "1"],
            expect![[r#"
            isochrone: --base 1: FOLDER/data.parquet is a table, whose indices count from 0
        "#]],
        ),
        (
            &["--input", "vw"],
            expect![[r#"
            isochrone: FOLDER/data.parquet: it is a table, which has indices; under the format vw features are hashes of names
        "#]],
        ),
        (
            &["--features", "3"],
            expect![[r#"
            isochrone: FOLDER/data.parquet: row 3, column `indices`: `3`: expected an index from 0 on, below 3
        "#]],
        ),
    ] {
        says(folder, &[&["plan", &table], words].concat(), 2, expected);
    }
    says(
        folder,
        &["plan", &arrow, "--label", "day"],
        2,
        expect![[r#"
            isochrone: FOLDER/data.arrow: column `day` has Utf8: numbers are wanted
        "#]],
    );
}

/// A model knows which number its data calls the first feature; where that was a table, or other data counts otherwise, it is said
/// and not guessed.
#[test]
fn predicted_lines_count_as_they_are_said_to() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (text, model) = (samples(folder), at(folder, "a.model"));
    let table = table(folder, "parquet");
    // The same lines, which count from 0; and those of them without a feature 0.
    let (zero, few) = (at(folder, "zero.svm"), at(folder, "few.svm"));
    let entry = |entry: &str| match entry.split_once(':') {
        Some((index, value)) => format!("{}:{value}", index.parse::<u32>().unwrap() - 1),
        None => entry.to_owned(),
    };
    let lines: Vec<String> = fs::read_to_string(&text)
        .unwrap()
        .lines()
        .map(|line| line.split(" #").next().unwrap().split(' ').map(entry).collect::<Vec<_>>().join(" "))
        .collect();
    fs::write(&zero, lines.join("\n")).unwrap();
    fs::write(&few, "7 1:1 2:1\n7 3:1\n").unwrap();
    let decisions = |data: &str, base: &[&str]| {
        learn(folder, &[&["predict", data, "--model", &model, "--what", "decision"], base].concat())
    };
    for data in [&table, &text, &zero] {
        assert_eq!(learn(folder, &["train", data, "--model", &model, "--threads", "2"]).0, 0);
        let expected = decisions(&table, &[]);
        assert_eq!((expected.0, expected.1.lines().count()), (0, 60));
        assert_eq!(decisions(&text, &["--base", "1"]), expected);
        assert_eq!(decisions(&zero, &["--base", "0"]), expected);
        let [as_zero, as_one] = ["0", "1"].map(|base| decisions(&few, &["--base", base]));
        assert!(as_zero.0 == 0 && as_one.0 == 0 && as_zero != as_one);
        if *data == zero {
            assert_eq!(decisions(&few, &[]), as_zero);
        }
    }
    assert_eq!(learn(folder, &["train", &table, "--model", &model, "--threads", "2"]).0, 0);
    for verb in ["predict", "evaluate"] {
        for data in [&text, &zero, &few] {
            let wanted = format!(
                "isochrone: {}: it has lines, and FOLDER/a.model is of a table, which does not tell whether they count features \
                 from 0 or from 1\n  say --base 0 (as scikit-learn writes by default) or --base 1 (as libsvm's files have it)\n",
                data.replace(folder.to_str().unwrap(), "FOLDER")
            );
            assert_eq!(learn(folder, &[verb, data, "--model", &model]), (2, wanted));
        }
        let wanted =
            "isochrone: --base 1: FOLDER/data.parquet is a table, whose indices count from 0\n".to_owned();
        assert_eq!(learn(folder, &[verb, &table, "--model", &model, "--base", "1"]), (2, wanted));
    }
    assert_eq!(learn(folder, &["train", &text, "--model", &model, "--threads", "2"]).0, 0);
    says(
        folder,
        &["predict", &zero, "--model", &model],
        2,
        expect![[r#"
            isochrone: FOLDER/zero.svm:1:3: `0:-1`: expected an index from 1 on, from which the data of FOLDER/a.model counted: if this file alone counts from 0, say --base 0; if that did too, train again with --base 0
        "#]],
    );
    let (status, said) = decisions(&text, &["--base", "2"]);
    assert!(status == 2 && said.contains("for '--base <0|1>': files count from 0 or from 1"), "{said}");
    let vw = at(folder, "data.vw");
    fs::write(&vw, "4 |a b\n7 |a c\n").unwrap();
    assert_eq!(learn(folder, &["train", &vw, "--model", &model, "--input", "vw"]).0, 0);
    says(
        folder,
        &["evaluate", &vw, "--model", &model, "--base", "0"],
        2,
        expect![[r#"
            isochrone: --base: it is for svmlight; FOLDER/a.model is of --input vw, where names are hashed
        "#]],
    );
}

/// A table's column of weights is what importances of lines are: here that of the labels, 4 and 7.
#[test]
fn weights_of_tables_are_learnt_by() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (lines, model) = (at(folder, "data.vw"), at(folder, "a.model"));
    let text: String = (0..60)
        .map(|row| {
            let (label, sign) = if row % 3 == 0 { (4, -1.0) } else { (7, 1.0) };
            format!("{label} {label} | 0:{} {}:1\n", sign * (1.0 + f64::from(row % 5)), row % 4 + 1)
        })
        .collect();
    fs::write(&lines, text).unwrap();
    let told = |data: &str, form: &[&str]| {
        let train =
            ["train", data, "--model", &model, "--threads", "2", "--epochs", "1", "--loss", "squared"];
        let (status, said) = learn(folder, &[&train[..], &["--step", "0.001"], form].concat());
        assert_eq!(status, 0, "{said}");
        let decisions = learn(folder, &["predict", data, "--model", &model, "--what", "decision"]);
        let weights = if form.contains(&"--weight") { &["--weight", "label"][..] } else { &[] };
        let figures = learn(folder, &[&["evaluate", data, "--model", &model], weights].concat());
        assert_eq!((decisions.0, figures.0, decisions.1.lines().count()), (0, 0, 60), "{}", figures.1);
        (decisions, figures)
    };
    for batches in [&[][..], &["--batch-rows", "17"]] {
        let by_lines = told(&lines, &[&["--input", "vw"], batches].concat());
        for name in ["parquet", "arrow"] {
            let table = table(folder, name);
            assert_eq!(told(&table, &[&["--weight", "label"], batches].concat()), by_lines);
            let unweighed = told(&table, batches);
            assert!(unweighed.0 != by_lines.0 && unweighed.1 != by_lines.1);
        }
    }
    let table = table(folder, "parquet");
    says(
        folder,
        &["train", &table, "--model", &model, "--weight", "day"],
        2,
        expect![[r#"
            isochrone: FOLDER/data.parquet: column `day` has BYTE_ARRAY: numbers are wanted
        "#]],
    );
    says(
        folder,
        &["train", &samples(folder), "--model", &model, "--weight", "w"],
        2,
        expect![[r#"
            isochrone: FOLDER/data.svm: it is no table, and has no column `w` of weights
        "#]],
    );
    for flag in ["--label", "--indices", "--values"] {
        for words in [&["train", "--input", "vw"][..], &["train"], &["evaluate"], &["predict"]] {
            if (words[0], flag) == ("predict", "--label") {
                continue;
            }
            let text = samples(folder);
            let (status, said) = learn(folder, &[words, &[&text, "--model", &model, flag, "w"]].concat());
            assert_eq!(status, 2, "{words:?} {flag}: {said}");
            let wanted = format!(
                "isochrone: {flag} w: it names a column of Parquet or Arrow; FOLDER/data.svm has lines of "
            );
            assert!(said.starts_with(&wanted), "{words:?} {flag}: {said}");
        }
    }
}

/// Standard input, whatever it has; and what cannot be read from there.
#[test]
fn what_is_piped_is_what_the_file_has() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = samples(folder);
    let packed = at(folder, "data.svm.gz");
    let (file, body) = (File::create(&packed).unwrap(), fs::read(&text).unwrap());
    let gzip = isochrone_learn::read::Compression::Gzip;
    gzip.write(file, |to| to.write_all(&body)).unwrap();
    let model = at(folder, "a.model");
    let train = |data: &str| ["learn", "train", data, "--model", &model, "--threads", "2"].map(str::to_owned);
    assert_eq!(outcome(train(&text)).0, 0);
    let by_file = fs::read(&model).unwrap();
    for piped in [text.clone(), packed, table(folder, "parquet"), table(folder, "arrow")] {
        fs::remove_file(&model).unwrap();
        let output = isochrone(train("-")).stdin(File::open(&piped).unwrap()).output().unwrap();
        assert!(output.status.success(), "{piped}: {}", String::from_utf8_lossy(&output.stderr));
        // Of a table the model says that it was one; what it predicts is the same.
        let by_pipe = fs::read(&model).unwrap();
        if piped.contains(".svm") {
            assert!(by_pipe == by_file, "{piped}");
        }
        let (status, told, _) = outcome(["learn", "evaluate", &text, "--model", &model, "--base", "1"]);
        assert!(status == 0 && told.contains("accuracy                 1.000000"), "{piped}: {told}");
    }
    let mut broken = isochrone(train("-"));
    fs::write(at(folder, "bad.svm"), "1 1:1\n-1 2:x\n").unwrap();
    let output = broken.stdin(File::open(folder.join("bad.svm")).unwrap()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "isochrone: standard input:2:4: `2:x`: expected INDEX:VALUE, e.g. 3:0.5\n");
    says(
        folder,
        &["train", "-", "--model", &model, "--batch-rows", "10"],
        2,
        expect![[r#"
            isochrone: --batch-rows reads the data more than once, which standard input cannot be
              give a file
        "#]],
    );
}

/// Batches are read once an epoch, and so from what gives the same each time.
#[test]
fn batches_are_of_what_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (samples(folder), at(folder, "a.model"));
    let pipe = at(folder, "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    says(
        folder,
        &["train", &pipe, "--model", &model, "--batch-rows", "10"],
        2,
        expect![[r#"
            isochrone: --batch-rows reads the data more than once, which FOLDER/pipe cannot be
              give a file
        "#]],
    );
    let mut piped = isochrone(["learn", "train", "/dev/stdin", "--model", &model, "--batch-rows", "10"]);
    let output = piped.stdin(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("more than once, which /dev/stdin cannot be"), "{told}");
    // What is another class, or grows, between two epochs gives other samples.
    let words = ["learn", "train", &data, "--model", &model, "--batch-rows", "10", "--epochs", "500"];
    let file = File::options().write(true).open(&data).unwrap();
    let mut labels = [b"7", b"4"].into_iter().cycle();
    let mut class = || file.write_all_at(labels.next().unwrap(), 0).unwrap();
    let mut more = File::options().append(true).open(&data).unwrap();
    let mut grow = || more.write_all(b"4 1:-1\n").unwrap();
    let changes: [(&mut dyn FnMut(), &str); 2] = [
        (&mut class, "are not those of when it was read first: it has"),
        (&mut grow, " samples when it was read first, and "),
    ];
    for (change, wanted) in changes {
        let mut learning = isochrone(words).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while learning.try_wait().unwrap().is_none() {
            change();
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = learning.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(wanted) && told.contains(": it has changed meanwhile\n"), "{told}");
        assert!(!Path::new(&model).exists());
    }
}

/// What is written is there whole or not at all, and never in the place of what is read.
#[test]
fn nothing_is_written_over_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model, plan) = (samples(folder), at(folder, "a.model"), at(folder, "a.plan"));
    let link = at(folder, "link.svm");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    let train = ["train", &data, "--model", &model, "--threads", "2"];
    assert_eq!(learn(folder, &train).0, 0);
    assert_eq!(learn(folder, &["plan", &data, "--out", &plan]).0, 0);
    let before = [&data, &model, &plan].map(|path| fs::read(path).unwrap());
    let refused = |words: &[&str], path: &str| {
        let (status, said) = learn(folder, words);
        let wanted = format!(
            "{}: this is the file that is read from\n  write to another one",
            Path::new(path).file_name().unwrap().to_str().unwrap()
        );
        assert!(status == 2 && said.contains(&wanted), "{words:?}: {said}");
    };
    refused(&["train", &data, "--model", &data], &data);
    refused(&["train", &data, "--model", &link, "--batch-rows", "10"], &link);
    refused(&["train", &data, "--model", &plan, "--plan", &plan], &plan);
    refused(&["plan", &link, "--out", &data], &data);
    refused(&["predict", &data, "--model", &model, "--out", &link], &link);
    refused(&["predict", &data, "--model", &model, "--out", &model], &model);
    let five = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
    refused(&["global", five, &data, "--model", &data], &data);
    let mut piped = isochrone(["learn", "predict", "-", "--model", &model, "--out", &data]);
    let output = piped.stdin(File::open(&data).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!([&data, &model, &plan].map(|path| fs::read(path).unwrap()), before);
    // What cannot be predicted to its end leaves what was there.
    let (bad, told) = (at(folder, "bad.svm"), at(folder, "told"));
    fs::write(&bad, "1 1:1\n1 1:x\n").unwrap();
    fs::write(&told, "told before").unwrap();
    assert_eq!(learn(folder, &["predict", &bad, "--model", &model, "--out", &told]).0, 2);
    assert_eq!(fs::read(&told).unwrap(), b"told before");
    assert_eq!(learn(folder, &["predict", &data, "--model", &model, "--out", &told]), (0, String::new()));
    assert_eq!(fs::read_to_string(&told).unwrap().lines().count(), 60);
    // And what is no file stays what it is.
    let pipe = at(folder, "pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reading = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    assert_eq!(learn(folder, &["train", &data, "--model", &pipe, "--threads", "2"]).0, 0);
    assert_eq!(reading.join().unwrap(), before[1]);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 7, "no temporary file is left");
}

/// Vowpal Wabbit's form of the same samples: names are hashed, what is learnt is the same.
#[test]
fn vowpal_wabbits_lines_are_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (text, model) = (samples(folder), at(folder, "a.model"));
    let lines = fs::read_to_string(&text).unwrap();
    let line = |line: &str| {
        let line = line.split(" #").next().unwrap();
        let (label, entries) = line.split_once(' ').unwrap();
        let entries: Vec<_> = entries.split(' ').map(|entry| format!("word_{entry}")).collect();
        format!("{label} 'tag|text {}\n", entries.join(" "))
    };
    let vw = at(folder, "data.vw");
    fs::write(&vw, lines.lines().map(line).collect::<String>()).unwrap();
    let decisions = |data: &str, form: &[&str]| {
        let train = ["train", data, "--model", &model, "--threads", "2", "--loss", "logistic"];
        let (status, told) = learn(folder, &[&train, form].concat());
        assert_eq!(status, 0, "{told}");
        // How a file is read the model knows.
        learn(folder, &["predict", data, "--model", &model, "--what", "decision"])
    };
    let by_text = decisions(&text, &[]);
    assert_eq!(by_text.1.lines().count(), 60);
    assert_eq!(decisions(&vw, &["--input", "vw"]), by_text);
    assert_eq!(decisions(&vw, &["--input", "vw", "--bits", "12"]), by_text);
    says(
        folder,
        &["train", &vw, "--model", &model, "--input", "vw", "--features", "9"],
        2,
        expect![[r#"
            isochrone: --features is for svmlight; of --input vw, --bits says how many features there are
        "#]],
    );
}

/// What Vowpal Wabbit's lines say of importance: a line of importance 0 is not learnt from, and one of 2 is where steps of double
/// length are.
#[test]
fn importances_of_lines_are_learnt_by() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (at(folder, "data.vw"), at(folder, "a.model"));
    let line = |row: usize| {
        (if row.is_multiple_of(3) { "1" } else { "-1" }, format!("|f w{} v{}:0.5", row % 2, row % 7))
    };
    let write = |importance: &dyn Fn(usize) -> Option<&'static str>| {
        let lines = (0..60).filter_map(|row| {
            let (label, features) = line(row);
            Some(format!("{label} {} {features}\n", importance(row)?))
        });
        fs::write(&data, lines.collect::<String>()).unwrap();
    };
    let decisions = |step: &str, form: &[&str]| {
        let train = ["train", &data, "--model", &model, "--input", "vw", "--threads", "2", "--step", step];
        let (status, told) = learn(folder, &[&train[..], &["--alpha", "0", "--no-intercept"], form].concat());
        assert_eq!(status, 0, "{told}");
        // How much a sample counts does not matter to what is predicted of it.
        write(&|_| Some("3"));
        let told = learn(folder, &["predict", &data, "--model", &model, "--what", "decision"]);
        assert_eq!((told.0, told.1.lines().count()), (0, 60));
        told
    };
    for form in [&[][..], &["--batch-rows", "17"]] {
        write(&|row| (!row.is_multiple_of(5)).then_some(""));
        let some = decisions("0.1", form);
        write(&|row| Some(if row.is_multiple_of(5) { "0" } else { "" }));
        assert_eq!(decisions("0.1", form), some);
        write(&|_| Some("2"));
        let twice = decisions("0.05", form);
        write(&|_| Some(""));
        let once = decisions("0.1", form);
        assert_eq!(once, twice);
        assert_ne!(once, some);
    }
}

/// A line of importance 3 is worth three lines, one of 0 none: to the figures of `evaluate`, `train` and `global`, of two classes,
/// of three and of numbers. And a centre in a distant region learns what one thread learns from lines that count differently.
#[test]
fn figures_count_lines_as_often_as_they_are_important() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, often, model) = (at(folder, "data.vw"), at(folder, "often.vw"), at(folder, "a.model"));
    let figures = |arguments: &[&str]| -> serde_json::Value {
        let (status, told) = learn(folder, &[arguments, &["--format", "json"]].concat());
        assert_eq!(status, 0, "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told.get("figures").cloned().unwrap_or(told)
    };
    let near = |one: &serde_json::Value, other: &serde_json::Value| {
        assert!(one.as_object().unwrap().len() >= 2);
        for (name, value) in one.as_object().unwrap() {
            let (one, other) = (value.as_f64().unwrap(), other[name].as_f64().unwrap());
            assert!(name == "samples" || (one - other).abs() < 1e-9, "{name}: {one} {other}");
        }
    };
    // Every fifth label is not what the features say, so that some are told wrong.
    let write = |path: &str, classes: usize, importance: &dyn Fn(usize) -> Option<usize>| {
        let line = |row: usize| {
            let label = if row.is_multiple_of(5) { row / 3 % classes } else { row % classes };
            let count = importance(row).map_or(String::new(), |count| format!(" {count}"));
            format!("{label}{count} |f w{} v{}:0.5\n", row % classes, row % 7)
        };
        let times = |row: usize| if importance(row).is_none() { row % 4 } else { 1 };
        fs::write(path, (0..60).flat_map(|row| vec![line(row); times(row)]).collect::<String>()).unwrap();
    };
    for (classes, loss) in [(2, "logistic"), (3, "logistic"), (3, "squared")] {
        write(&data, classes, &|row| Some(row % 4));
        write(&often, classes, &|_| None);
        let train = ["train", &data, "--model", &model, "--input", "vw", "--loss", loss, "--threads", "2"];
        let trained = figures(&train);
        let told = figures(&["evaluate", &data, "--model", &model]);
        near(&trained, &told);
        near(&told, &figures(&["evaluate", &often, "--model", &model]));
        assert_eq!(told["samples"], 60.0);
        write(&data, classes, &|_| Some(1));
        assert_ne!(figures(&["evaluate", &data, "--model", &model]), told);
    }
    let deployment = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
    let global = ["global", deployment, &data, "--input", "vw", "--model", &model, "--batch-samples", "4"];
    let faults = ["--lose", "10", "--repeat", "10", "--restart", "10"];
    let decisions = |importance: &dyn Fn(usize) -> Option<usize>| {
        write(&data, 2, importance);
        // It ends with 0 only where the centre's model is one thread's over the order log.
        let told = figures(&[&global[..], &faults].concat());
        near(&told, &figures(&["evaluate", &data, "--model", &model]));
        learn(folder, &["predict", &data, "--model", &model, "--what", "decision"])
    };
    assert_ne!(decisions(&|row| Some(row % 4)), decisions(&|_| Some(1)));
}

#[test]
fn from_a_file_to_a_model_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model, plan) = (samples(folder), at(folder, "a.model"), at(folder, "a.plan"));
    says(
        folder,
        &["plan", &data, "--out", &plan, "--threads", "4"],
        0,
        expect![[r#"
        samples      60
        operations   240 (reads and writes)
        parameters   5 touched, of 5
        depth        60 (the longest chain of samples that wait for one another)
        parallelism  1.00 (samples / depth)
        plan         480 bytes, 4.00 for a read and a write
        sharing      1.0000 (probability that two samples share a feature)

        this data is a chain: 60 of its 60 samples must be learnt from one after the other, so one thread is as fast as it gets; feature 1 is in 100% of the samples and makes 100% of the chain's waits: if it is (nearly) constant, leave it out and fit an intercept, which costs no waiting
        wrote FOLDER/a.plan
    "#]],
    );
    says(
        folder,
        &["train", &data, "--model", &model, "--loss", "logistic", "--threads", "2", "--plan", &plan],
        0,
        expect![[r#"
            data             60 samples, 5 features, 120 values, 2 classes
            scheme           cop, 1 thread, 20 epochs
            objective        0.014117
            accuracy         1.000000
            precision        1.000000
            recall           1.000000
            area under curve 1.000000
            log loss         0.013755
            model            FOLDER/a.model
        "#]],
    );
    says(
        folder,
        &["evaluate", &data, "--model", &model],
        0,
        expect![[r#"
        samples                        60
        accuracy                 1.000000
        precision                1.000000
        recall                   1.000000
        area under curve         1.000000
        log loss                 0.013755
    "#]],
    );
    // Features are named as the file names them.
    let (status, json) = learn(folder, &["plan", &data, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &json["bottlenecks"][0]["parameter"]), (0, &1.into()));
    let from_zero = at(folder, "zero.svm");
    fs::write(&from_zero, "1 0:1 2:1\n-1 2:1\n1 2:1\n-1 2:1\n").unwrap();
    let (status, said) = learn(folder, &["plan", &from_zero]);
    assert!(status == 0 && said.contains("; feature 2 is in 100% of the samples"), "{said}");
    let (status, told) = learn(folder, &["predict", &data, "--model", &model]);
    assert_eq!((status, told.lines().take(4).collect::<Vec<_>>()), (0, vec!["4", "7", "7", "4"]));
    let words = ["predict", &data, "--model", &model, "--what", "probability", "--out", &at(folder, "told")];
    assert_eq!(learn(folder, &words), (0, String::new()));
    let told = fs::read_to_string(folder.join("told")).unwrap();
    let first: Vec<f64> = told.lines().next().unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
    assert!(
        told.lines().count() == 60 && first[0] > 0.5 && (first[0] + first[1] - 1.0).abs() < 1e-12,
        "{told}"
    );
    let (status, json) = learn(folder, &["evaluate", &data, "--model", &model, "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &json["accuracy"], &json["samples"]), (0, &1.0.into(), &60.0.into()));
}

/// The same file, byte for byte, whatever learnt it: the command's half of T-COP-10.
#[test]
fn schemes_and_threads_do_not_show_in_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = at(folder, "kdda.svm.zst");
    let (status, said) = learn(folder, &["generate", "kdda", "--scale", "1024", "--out", &data]);
    assert!(
        status == 0 && said.contains("sharing") && said.contains("samples                      8210"),
        "{said}"
    );
    let model = |words: &[&str]| {
        let path = at(folder, "some.model");
        let words = [&["train", &data, "--model", &path, "--epochs", "3"], words].concat();
        let (status, said) = learn(folder, &words);
        assert_eq!(status, 0, "{said}");
        fs::read(path).unwrap()
    };
    let one = model(&["--scheme", "serial"]);
    for words in [&["--threads", "1"][..], &["--threads", "4"], &["--scheme", "hogwild", "--threads", "1"]] {
        assert!(model(words) == one, "{words:?}");
    }
    for threads in ["1", "3"] {
        assert!(model(&["--packed", "--threads", threads]) == one, "{threads}");
    }
    assert!(model(&["--packed", "--first-epoch", "--threads", "1"]) == one);
    // One thread takes its locks in the order of the file. Without a barrier the intercept lags over the borders of epochs.
    assert!(model(&["--first-epoch", "--threads", "1"]) == one);
    let carried = model(&["--scheme", "serial", "--carry"]);
    for words in [&["--threads", "1"][..], &["--threads", "4"], &["--first-epoch", "--threads", "1"]] {
        assert!(model(&[words, &["--carry"]].concat()) == carried, "{words:?}");
    }
    assert!(model(&["--packed", "--threads", "2", "--carry"]) == carried);
    // With more the order is that of some run.
    model(&["--first-epoch", "--threads", "3", "--carry"]);
    let lots = ["--no-intercept", "--l1-ratio", "0.5", "--schedule", "optimal", "--held-out", "20"];
    let serial = model(&[&lots[..], &["--scheme", "serial"]].concat());
    assert!(model(&[&lots[..], &["--threads", "3"]].concat()) == serial);
    assert!(model(&[&lots[..], &["--threads", "3", "--packed"]].concat()) == serial);
    let batched = model(&["--batch-rows", "500", "--scheme", "serial"]);
    assert!(model(&["--batch-rows", "500", "--threads", "3"]) == batched);
    assert!(batched != one, "penalties and intercept are those of each batch");
}

#[test]
fn classes_cells_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = at(folder, "a.model");
    let three: String = (0..90).map(|row| format!("{} {}:1 9:0.1\n", row % 3, row % 3 + 1)).collect();
    let data = at(folder, "three.svm");
    fs::write(&data, three).unwrap();
    says(
        folder,
        &["train", &data, "--model", &model, "--threads", "2"],
        0,
        expect![[r#"
            data             90 samples, 9 features, 180 values, 3 classes
            scheme           cop, 1 thread, 20 epochs
            objective        0.000158
            accuracy         1.000000
            model            FOLDER/a.model
        "#]],
    );
    let cells: String = (0..200)
        .map(|cell| {
            let (row, column) = (cell % 10, cell * 7 % 13);
            format!(
                "{} {}:1 {}:1\n",
                f64::from(row % 3 + 1) * f64::from(column % 2 + 1),
                row + 1,
                column + 11
            )
        })
        .collect();
    let data = at(folder, "cells.svm");
    fs::write(&data, cells).unwrap();
    let words = ["train", &data, "--model", &model, "--rank", "3", "--alpha", "1e-5", "--epochs", "200"];
    let (status, said) =
        learn(folder, &[&words[..], &["--decay", "1", "--format", "json", "--threads", "2"]].concat());
    assert_eq!(status, 0, "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(told["figures"]["rmse"].as_f64().unwrap() < 0.1, "{said}");
    let (status, said) = learn(folder, &["evaluate", &data, "--model", &model]);
    assert!(status == 0 && said.contains("rmse") && said.contains("r2"), "{said}");
    // What are no cells it does not predict; nor does it know other rows.
    let other = at(folder, "other.svm");
    fs::write(&other, "1 1:1 11:1\n1 1:1 2:1 11:1\n").unwrap();
    for verb in ["predict", "evaluate"] {
        let (status, said) = learn(folder, &[verb, &other, "--model", &model]);
        let wanted = "isochrone: FOLDER/other.svm: sample 2 has 3 features, where a cell has two: its row and its column\n";
        assert!(status == 2 && said.ends_with(wanted), "{said}");
    }
    let (status, said) =
        learn(folder, &["train", &other, "--model", &model, "--rank", "1", "--batch-rows", "1"]);
    assert!(status == 2 && said.contains("sample 2 has 3 features"), "{said}");
    fs::write(&other, "1 1:1 30:1\n1 31:1 32:1\n").unwrap();
    for verb in ["predict", "evaluate"] {
        let (status, said) = learn(folder, &[verb, &other, "--model", &model]);
        let wanted = "isochrone: 3 values of features beyond the model's 23 count as nothing\n";
        assert!(status == 0 && said.ends_with(wanted), "{said}");
    }
}

/// What is said of the samples kept out is what `evaluate` says of them.
#[test]
fn figures_of_samples_kept_out_are_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, held, model) = (at(folder, "data.svm"), at(folder, "held.svm"), at(folder, "a.model"));
    // The label is known by a feature that no other sample has, and so where the sample is learnt from only.
    let line = |row: usize| {
        let label = if row * 7 % 10 < 5 { -1 } else { 1 };
        format!("{label} {}:1 {}:1\n", row % 3 + 1, row + 4)
    };
    let lines: Vec<String> = (0..200).map(line).collect();
    fs::write(&data, lines.concat()).unwrap();
    let mut random = Random::seeded(5);
    let kept_out = lines.iter().filter(|_| random.chance(0.2));
    fs::write(&held, kept_out.map(String::as_str).collect::<String>()).unwrap();
    let train = |words: &[&str]| {
        let all = ["train", &data, "--model", &model, "--held-out", "20", "--seed", "5", "--threads", "2"];
        let (status, said) = learn(folder, &[&all[..], words].concat());
        assert_eq!(status, 0, "{said}");
        said
    };
    for loss in ["hinge", "squared"] {
        let json = train(&["--loss", loss, "--format", "json"]);
        let told: serde_json::Value = serde_json::from_str(&json).unwrap();
        let (status, said) = learn(folder, &["evaluate", &held, "--model", &model, "--format", "json"]);
        assert_eq!(status, 0, "{said}");
        let evaluated: serde_json::Value = serde_json::from_str(&said).unwrap();
        let figures = told["held_out_figures"].as_object().unwrap();
        assert!(figures.len() >= 3, "{json}");
        for (name, value) in figures {
            assert_eq!(evaluated[name], *value, "{name}: {json}\n{said}");
        }
        assert_ne!(told["figures"], told["held_out_figures"], "{json}");
        let text = train(&["--loss", loss]);
        assert!(text.contains(&format!("\n{:17}held out     training\n", "")), "{text}");
        let name = if loss == "hinge" { "accuracy" } else { "rmse" };
        let [held, training] =
            ["held_out_figures", "figures"].map(|samples| told[samples][name].as_f64().unwrap());
        assert!(text.contains(&format!("\n{name:16} {held:<12.6} {training:.6}\n")), "{text}");
    }
}

/// As scikit-learn decides: what has a fraction is a number, and so may be what hardly ever occurs twice.
#[test]
fn numbers_are_not_taken_for_classes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (at(folder, "data.svm"), at(folder, "a.model"));
    let write = |label: &dyn Fn(usize) -> f64| {
        let lines = (0..60).map(|row| format!("{} {}:1\n", label(row * 7 % 60), row % 5 + 1));
        fs::write(&data, lines.collect::<String>()).unwrap();
    };
    let five = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
    let train = ["train", &data, "--model", &model, "--threads", "2", "--epochs", "2"];
    let batched = [&train[..], &["--batch-rows", "25"]].concat();
    let ways = [&train[..], &batched[..], &["global", five, &data]];
    let fractions: [(&dyn Fn(usize) -> f64, &str); 2] =
        [(&|row| row as f64 / 4.0, "0.25"), (&|row| row as f64 % 2.0 - 0.5, "-0.5")];
    for (numbers, first) in fractions {
        write(numbers);
        let wanted = format!(
            "isochrone: FOLDER/data.svm: there are labels such as {first}, which are hardly classes\n  \
             for numbers use --loss squared; name classes by whole numbers\n"
        );
        for words in ways {
            assert_eq!(learn(folder, words), (2, wanted.clone()), "{words:?}");
        }
        let (status, said) = learn(folder, &[&train[..], &["--loss", "squared", "--step", "0.01"]].concat());
        assert_eq!(status, 0, "{said}");
    }
    for (classes, warned) in [(31, true), (30, false)] {
        write(&|row| (row % classes) as f64);
        for words in ways {
            let (status, said) = learn(folder, words);
            let wanted = "isochrone: FOLDER/data.svm: there are 31 labels in 60 samples, which are hardly classes: \
                          for numbers use --loss squared\n";
            assert!(status == 0 && said.contains(wanted) == warned, "{words:?}: {said}");
        }
    }
}

/// Whole or in batches; shuffled it says nothing.
#[test]
fn samples_that_come_class_by_class_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (at(folder, "data.svm"), at(folder, "a.model"));
    let warns = |class: &dyn Fn(usize) -> usize, words: &[&str]| {
        let lines = (0..120).map(|row| format!("{} {}:1\n", class(row), row % 5 + 1));
        fs::write(&data, lines.collect::<String>()).unwrap();
        let train = ["train", &data, "--model", &model, "--threads", "2", "--epochs", "1"];
        let (status, said) = learn(folder, &[&train[..], words].concat());
        assert_eq!(status, 0, "{said}");
        said.contains(
            "isochrone: FOLDER/data.svm: the samples come class by class, and are learnt from in that order, which makes a \
             worse model: shuffle them before (lines: shuf FILE)\n",
        )
    };
    for words in [&[][..], &["--held-out", "20"], &["--batch-rows", "50"]] {
        assert!(warns(&|row| row / 60, words) && warns(&|row| row / 40, words), "{words:?}");
        assert!(!warns(&|row| row % 2, words) && !warns(&|row| row % 3, words), "{words:?}");
    }
    // In stretches that come again, it is batches of one class each that matter.
    let stretches = |row: usize| row / 30 % 2;
    assert!(warns(&stretches, &["--batch-rows", "30"]));
    assert!(!warns(&stretches, &[]) && !warns(&stretches, &["--batch-rows", "60"]));
    // A class that is rare is no stretch of the other, and numbers may come in any order.
    assert!(!warns(&|row| usize::from(row % 50 == 7), &["--batch-rows", "30"]));
    assert!(!warns(&|row| row / 60, &["--loss", "squared", "--step", "0.01"]));
}

/// Samples are neither written under a name that promises what they are not, nor taken for wrong lines.
#[test]
fn packing_and_encodings_that_are_not_known_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for end in ["xz", "lz4", "zip"] {
        let out = at(folder, &format!("made.svm.{end}"));
        let wanted = format!(
            "isochrone: --out FOLDER/made.svm.{end}: nothing is packed by {end} here\n  \
             end the name in .gz, .zst or .bz2, or write text and pack that\n"
        );
        let words = ["generate", "hotspot:1K", "--samples", "5", "--out", &out];
        assert_eq!(learn(folder, &words), (2, wanted));
        assert!(!Path::new(&out).exists());
    }
    let data = at(folder, "data.svm");
    let wide = "1 1:1\n".encode_utf16();
    let (little, big): (Vec<_>, Vec<_>) = wide.map(|unit| (unit.to_le_bytes(), unit.to_be_bytes())).unzip();
    for (bytes, wanted) in [
        (b"\x04\x22\x4d\x18\x64\x40\xa7".to_vec(), "compressed by lz4\n  unpack it first: unlz4 FILE"),
        (
            [b"\xff\xfe".to_vec(), little.concat()].concat(),
            "text in UTF-16\n  write it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE",
        ),
        (
            [b"\xfe\xff".to_vec(), big.concat()].concat(),
            "text in UTF-16\n  write it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE",
        ),
    ] {
        fs::write(&data, bytes).unwrap();
        let wanted = format!("isochrone: FOLDER/data.svm: this is {wanted}\n");
        assert_eq!(learn(folder, &["plan", &data]), (2, wanted));
    }
}

#[test]
fn wrong_input_is_told_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (samples(folder), at(folder, "a.model"));
    let train = |words: &[&str], expected| {
        says(folder, &[&["train", &data, "--model", &model], words].concat(), 2, expected);
    };
    train(
        &["--loss", "huber"],
        expect![[r#"
        error: invalid value 'huber' for '--loss <LOSS>': no loss is called `huber`; there are hinge, squared-hinge, logistic and squared

        For more information, try '--help'.
    "#]],
    );
    train(
        &["--scheme", "ideal"],
        expect![[r#"
        error: invalid value 'ideal' for '--scheme <SCHEME>': there is no scheme "ideal": use serial, cop, hogwild, locking or occ

        For more information, try '--help'.
    "#]],
    );
    train(
        &["--l1-ratio", "2"],
        expect![[r#"
        isochrone: --l1-ratio 2: a share is a number from 0 to 1
    "#]],
    );
    train(
        &["--first-epoch", "--scheme", "locking"],
        expect![[r#"
        isochrone: --first-epoch is for --scheme cop; locking needs no plan
    "#]],
    );
    train(
        &["--carry", "--scheme", "hogwild"],
        expect![[r#"
        isochrone: --carry is for --scheme cop and serial; hogwild has no versions to carry on
    "#]],
    );
    train(
        &["--plan", &model, "--scheme", "hogwild"],
        expect![[r#"
        isochrone: --plan is for --scheme cop; hogwild needs no plan
    "#]],
    );
    train(
        &["--plan", &at(folder, "none.plan")],
        expect![[r#"
        isochrone: --plan FOLDER/none.plan: cannot be read: No such file or directory (os error 2)
          `isochrone learn plan --out` writes one
    "#]],
    );
    train(
        &["--bits", "12"],
        expect![[r#"
        isochrone: --bits 12: it is for --input vw, whose features are hashed
    "#]],
    );
    train(
        &["--decay", "0.5", "--schedule", "constant"],
        expect![[r#"
        isochrone: --decay 0.5: it is for --schedule geometric
    "#]],
    );
    train(
        &["--power", "1"],
        expect![[r#"
        isochrone: --power 1: it is for --schedule inverse-scaling
    "#]],
    );
    train(
        &["--power", "inf", "--schedule", "inverse-scaling"],
        expect![[r#"
        isochrone: --power inf: an exponent is a number
    "#]],
    );
    let five = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
    for (flag, number, why) in [
        ("--alpha", "-1", "a strength is a number from 0 on"),
        ("--step", "0", "a step is a number above 0"),
        ("--power", "NaN", "an exponent is a number"),
    ] {
        let said = learn(folder, &["global", five, &data, &format!("{flag}={number}")]);
        assert_eq!(said, (2, format!("isochrone: {flag} {number}: {why}\n")));
    }
    // What is to be written is tried before anything is read.
    let (nowhere, absent) = (at(folder, "none/it"), at(folder, "absent.svm"));
    for words in [
        &["train", &absent, "--model", &nowhere][..],
        &["plan", &absent, "--out", &nowhere],
        &["global", five, &absent, "--model", &nowhere],
    ] {
        let wanted = "isochrone: FOLDER/none/it: cannot be written: No such file or directory (os error 2)\n  \
                      name a file in a folder that this user may write\n";
        assert_eq!(learn(folder, words), (2, wanted.to_owned()));
    }
    let (status, said) =
        learn(folder, &["train", &data, "--model", &model, "--batch-rows", "9", "--patience", "2"]);
    assert!(
        status == 2 && said.contains("'--batch-rows <N>' cannot be used with '--patience <N>'"),
        "{said}"
    );
    train(
        &["--input", "vw", "--base", "1"],
        expect![[r#"
        isochrone: --base: it is for svmlight; of --input vw, names are hashed
    "#]],
    );
    train(
        &["--packed", "--scheme", "hogwild"],
        expect![[r#"
        isochrone: --packed is for --scheme cop; hogwild has no plan to lay the model out by
    "#]],
    );
    train(
        &["--carry", "--held-out", "10"],
        expect![[r#"
        error: the argument '--carry' cannot be used with '--held-out <PCT>'

        Usage: isochrone learn train --model <FILE> --carry <DATA>

        For more information, try '--help'.
    "#]],
    );
    train(
        &["--schedule", "optimal", "--step", "0.5"],
        expect![[r#"
        isochrone: --step 0.5: --schedule optimal takes its steps from --alpha
    "#]],
    );
    train(
        &["--schedule", "optimal", "--rank", "2"],
        expect![[r#"
        isochrone: --rank 2: --schedule optimal is that of linear models; take geometric, constant or inverse-scaling
    "#]],
    );
    train(
        &["--seed", "3"],
        expect![[r#"
        isochrone: --seed 3: nothing is drawn here; it is for --held-out and --rank, samples are taken in their order
    "#]],
    );
    train(
        &["--threads", "1025"],
        expect![[r#"
        error: invalid value '1025' for '--threads <T>': 1 to 1024 threads are possible; left out, there is one for each core

        For more information, try '--help'.
    "#]],
    );
    train(
        &["--rank", "2"],
        expect![[r#"
        isochrone: the model diverged: its numbers grew beyond all bounds
          take smaller steps (--step 0.01, with --schedule optimal a larger --alpha), or scale the values of the samples to about 1
    "#]],
    );
    train(
        &["--rank", "1000000000", "--features", "4294967295"],
        expect![[r#"
            isochrone: 4294967295 features want 17179869184.0 GiB of memory at a time, which is not there: hash them into fewer, or, if there should not be so many, look for an index that is mistyped
        "#]],
    );
    train(
        &["--features", "3"],
        expect![[r#"
            isochrone: FOLDER/data.svm:3:7: `4:1`: expected an index of at most 3
        "#]],
    );
    train(
        &["--loss", "squared", "--step", "1000"],
        expect![[r#"
            isochrone: the model diverged: its objective is 9.224e29, that of a model of zeros 19.000
              take smaller steps (--step 0.01, with --schedule optimal a larger --alpha), or scale the values of the samples to about 1
        "#]],
    );
    let bad = at(folder, "bad.svm");
    fs::write(&bad, "1 1:1\n1 1:1 x\n-1 2:1 2:3\n-1 3:1\n").unwrap();
    says(
        folder,
        &["train", &bad, "--model", &model],
        2,
        expect![[r#"
        isochrone: FOLDER/bad.svm:2:7: `x`: expected INDEX:VALUE, e.g. 3:0.5
    "#]],
    );
    says(
        folder,
        &["train", &bad, "--model", &model, "--skip-errors", "2", "--threads", "1"],
        0,
        expect![[r#"
            data             2 samples, 3 features, 2 values, 2 classes
            scheme           cop, 1 thread, 20 epochs
            objective        0.121726
            accuracy         1.000000
            precision        1.000000
            recall           1.000000
            area under curve 1.000000
            model            FOLDER/a.model
            isochrone: 2 wrong lines were left out:
              FOLDER/bad.svm:2:7: `x`: expected INDEX:VALUE, e.g. 3:0.5
              FOLDER/bad.svm:3:8: `2:3`: expected each index once in a line
        "#]],
    );
    says(
        folder,
        &["plan", &bad, "--skip-errors", "1"],
        2,
        expect![[r#"
        isochrone: FOLDER/bad.svm:3:8: `2:3`: expected each index once in a line
          1 wrong line before it was left out
    "#]],
    );
    says(
        folder,
        &["predict", &data, "--model", &model, "--out", &at(folder, "none/told")],
        2,
        expect![[r#"
        isochrone: FOLDER/none/told: cannot be written: No such file or directory (os error 2)
          name a file in a folder that this user may write
    "#]],
    );
    says(
        folder,
        &["plan", &at(folder, "none.svm")],
        2,
        expect![[r#"
        isochrone: FOLDER/none.svm: cannot read it: No such file or directory (os error 2)
          name a file of samples, or - for standard input
    "#]],
    );
    let plan = at(folder, "a.plan");
    assert_eq!(learn(folder, &["plan", &data, "--out", &plan]).0, 0);
    says(
        folder,
        &["train", &bad, "--skip-errors", "2", "--model", &model, "--plan", &plan],
        2,
        expect![[r#"
            isochrone: 2 wrong lines were left out:
              FOLDER/bad.svm:2:7: `x`: expected INDEX:VALUE, e.g. 3:0.5
              FOLDER/bad.svm:3:8: `2:3`: expected each index once in a line
            isochrone: FOLDER/a.plan: the plan is of other data (it has 60 samples, the data 2): plan this data
        "#]],
    );
    says(
        folder,
        &["predict", &data, "--model", &data],
        2,
        expect![[r#"
        isochrone: FOLDER/data.svm: this is not a model: models begin with `isomodel`, and `isochrone learn train` writes them
    "#]],
    );
    says(
        folder,
        &["predict", &data, "--model", &model, "--what", "probability"],
        2,
        expect![[r#"
        isochrone: --what probability: the decisions of FOLDER/a.model are no log-odds
          train with --loss logistic
    "#]],
    );
    says(
        folder,
        &["evaluate", &data, "--model", &model],
        2,
        expect![[r#"
        isochrone: FOLDER/data.svm: a sample is of class 4, the model knows -1, 1
          evaluate on data of the model's classes
    "#]],
    );
    says(
        folder,
        &["generate", "imdb", "--noise", "nan"],
        2,
        expect![[r#"
        isochrone: the noise is NaN, where a number from 0 on is wanted
    "#]],
    );
    says(
        folder,
        &["generate", "rcv1"],
        2,
        expect![[r#"
        error: invalid value 'rcv1' for '<RECIPE>': no data is called `rcv1`; there are kdda, kddb, imdb, and hotspot:FEATURES, e.g. hotspot:10000

        For more information, try '--help'.
    "#]],
    );
}

/// specs/cop.md T-COP-12, as a user sees it.
#[test]
fn regions_collect_and_a_centre_learns_what_one_thread_would() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (data, model) = (at(folder, "data.svm.gz"), at(folder, "global.model"));
    let (status, said) = learn(folder, &["generate", "imdb", "--scale", "64", "--out", &data]);
    assert_eq!(status, 0, "{said}");
    let five = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deployments/five-regions.toml");
    let faults = ["--lose", "10", "--repeat", "10", "--restart", "5", "--batch-samples", "64"];
    let words =
        [&["global", five, &data, "--model", &model, "--format", "json", "--threads", "3"], &faults[..]];
    let (status, said) = learn(folder, &words.concat());
    assert_eq!(status, 0, "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["equal"], &told["center"]), (&true.into(), &"US West".into()), "{said}");
    let regions = told["regions"].as_array().unwrap();
    let sum = |name: &str| regions.iter().map(|region| region[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((regions.len(), sum("samples")), (4, 167_773 / 64), "{said}");
    assert!(sum("restarts") > 0 && sum("sent") > sum("batches"), "{said}");
    let (status, said) = learn(folder, &["evaluate", &data, "--model", &model]);
    assert!(status == 0 && said.contains("accuracy"), "{said}");
    // Of more than two classes each is set against the rest.
    let three = at(folder, "three.svm");
    let line = |row: usize| format!("{} {}:1 {}:1\n", row % 3 * 5, row % 3 + 1, row % 7 + 4);
    fs::write(&three, (0..600).map(line).collect::<String>()).unwrap();
    let words = [&["global", five, &three, "--model", &model, "--format", "json"], &faults[..]].concat();
    let (status, said) = learn(folder, &words);
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (status, &told["equal"], &told["figures"]["accuracy"]),
        (0, &true.into(), &1.0.into()),
        "{said}"
    );
    let (status, said) = learn(folder, &["predict", &three, "--model", &model]);
    assert_eq!((status, said.lines().take(4).collect::<Vec<_>>()), (0, vec!["0", "5", "10", "0"]));
    fs::write(&three, "1 1:1\n1 2:1\n").unwrap();
    let (status, said) = learn(folder, &["global", five, &three]);
    assert!(
        status == 2 && said.contains("all samples are of class 1; there must be two classes to tell apart"),
        "{said}"
    );
    let (status, said) = learn(folder, &["global", five, &data, "--center", "Mars"]);
    assert_eq!(status, 2, "{said}");
    assert!(said.contains("--center Mars: no region is called so; there are US West, "), "{said}");
    // Nobody is served: that nodes are reached from elsewhere asks for no certificates.
    let open = at(folder, "open.toml");
    let node = |name: &str| {
        let (region, listen) = (name.to_uppercase(), format!("10.0.0.1:{}", 7000 + name.len()));
        format!(
            "[[region]]\nname = \"{region}\"\n[[node]]\nname = \"{name}\"\nregion = \"{region}\"\nlisten = \"{listen}\"\n"
        )
    };
    let keyspace = "[[keyspace]]\nname = \"main\"\nprotocol = \"multipaxos\"\nreplication = 1\n";
    let text =
        format!("cluster = \"open\"\n[network]\nrtt = \"open.csv\"\n{}{}{keyspace}", node("r"), node("ss"));
    fs::write(&open, text).unwrap();
    fs::write(at(folder, "open.csv"), "region,R,SS\nR,0,9\nSS,9,0\n").unwrap();
    let (status, said) = learn(folder, &["global", &open, &data, "--center", "Mars"]);
    assert!(status == 2 && said.contains("no region is called so; there are R, SS"), "{said}");
    let (status, said) = learn(folder, &["global", five, &data, "--lose", "95"]);
    assert!(status == 2 && said.contains("--lose 95: a share is from 0 to 90 percent"), "{said}");
}
