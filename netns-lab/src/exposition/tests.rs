use super::*;

const HEAD: &str = "# HELP a Words \\\\ and \\n.\n# TYPE a gauge\n";

#[test]
fn a_page_is_read() {
    let page = "# HELP a Words.\n# TYPE a gauge\na{b=\"x \\\"{}\\\\\",c=\"\"} 1\na{b=\"y\",c=\"\"} 2\n\
                # TYPE b counter\n# HELP b Words.\nb_total 3\n\
                # HELP c Words.\n# TYPE c info\nc_info{d=\"e\"} 1\n# HELP d Words.\n# TYPE d gauge\n# EOF\n";
    let read = Exposition::read(page).expect("a page");
    assert_eq!(read.value("a{b=\"x \\\"{}\\\\\",c=\"\"}"), Some(1));
    assert_eq!(read.value("b_total"), Some(3));
    assert_eq!(read.value("b"), None);
    assert_eq!(read.families().count(), 4);
    assert_eq!(read.samples().count(), 4);

    let before = Exposition::read(&page.replace("b_total 3", "b_total 4")).expect("a page");
    assert_eq!(read.fallen(&before).collect::<Vec<_>>(), ["b_total"]);
    assert_eq!(before.fallen(&read).count(), 0);
    let higher = Exposition::read(&page.replace("} 2", "} 9")).expect("a page");
    assert_eq!(read.fallen(&higher).count(), 0, "gauges may fall");
}

#[test]
fn whatever_is_not_as_specified_is_a_fault() {
    for (what, lines) in [
        ("no # EOF", "a 1\n"),
        ("it does not end", "a 1\n# EOF"),
        ("something behind the end", "a 1\n# EOF\n\n"),
        ("no value", "a\n# EOF\n"),
        ("no value", "\n# EOF\n"),
        ("not a number", "a -1\n# EOF\n"),
        ("not a number", "a 1.\n# EOF\n"),
        ("not a number", "a .5\n# EOF\n"),
        ("not a number", "a 1.5e3\n# EOF\n"),
        ("not a name of its family", "a  1\n# EOF\n"),
        ("not a number", "a NaN\n# EOF\n"),
        ("not a name of its family", "a 1 \n# EOF\n"),
        ("not a number", "a 1\r\n# EOF\n"),
        ("not a name of its family", "a_total 1\n# EOF\n"),
        ("not a name of its family", "b 1\n# EOF\n"),
        ("a series in two places", "a 1\na 1\n# EOF\n"),
        ("no braces", "a{b=\"c\" 1\n# EOF\n"),
        ("no label", "a{} 1\n# EOF\n"),
        ("no label", "a{b=\"c\",} 1\n# EOF\n"),
        ("no comma", "a{b=\"c\"d=\"e\"} 1\n# EOF\n"),
        ("a label twice", "a{b=\"c\",b=\"d\"} 1\n# EOF\n"),
        ("not a name of a label", "a{1=\"c\"} 1\n# EOF\n"),
        ("not a name of a label", "a{__b=\"c\"} 1\n# EOF\n"),
        ("a value without an end", "a{b=\"c\\\"} 1\n# EOF\n"),
        ("not an escape", "a{b=\"\\t\"} 1\n# EOF\n"),
        (
            "other labels than the sample before",
            "a{b=\"c\"} 1\na 1\n# EOF\n",
        ),
        ("stated twice", "# HELP a Words.\n# EOF\n"),
        ("stated twice", "# TYPE a gauge\n# EOF\n"),
        (
            "a description behind the samples",
            "a 1\n# HELP a Words.\n# EOF\n",
        ),
        ("no space", "#HELP b Words.\n# EOF\n"),
        ("neither HELP nor TYPE", "# UNIT b seconds\n# EOF\n"),
        ("a type that is not used", "# TYPE b histogram\n# EOF\n"),
        ("not a name of a family", "# TYPE b_total counter\n# EOF\n"),
        ("not a name of a family", "# TYPE 1 counter\n# EOF\n"),
        ("no type before", "# HELP b Words.\nb 1\n# EOF\n"),
        ("no help before", "# TYPE b gauge\nb 1\n# EOF\n"),
        (
            "a family in two places",
            "a 1\n# TYPE b gauge\n# HELP a Words.\n# EOF\n",
        ),
        (
            "an info is 1",
            "# TYPE b info\n# HELP b Words.\nb_info 0\n# EOF\n",
        ),
    ] {
        let page = format!("{HEAD}{lines}");
        let fault = Exposition::read(&page).expect_err(what);
        assert_eq!(fault.what, what, "{lines:?}");
    }
    assert!(Exposition::read("").is_err());
}
