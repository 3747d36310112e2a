//! What goes in and out as text: parameters and reports.

use foliant_lab::{Named, Parameters, Ratio, Report, Row, Scenario};

fn refused(scenario: Scenario, word: &str) -> String {
    Parameters::parse(scenario, [word]).unwrap_err().to_string()
}

#[test]
fn bad_words_are_named_with_the_way_out() {
    let flush = |word: &str| refused(Scenario::Flush, word);
    assert_eq!(flush("pages"), "pages is no parameter; one looks like name=value");
    assert_eq!(flush("page=1"), "page=1: flush has other parameters: pages, grains");
    let pages = "pages is a whole number from 1 to 131072";
    for value in ["0", "131073", "-1", "x", "", "1.5", "99999999999999999999999"] {
        assert_eq!(flush(&format!("pages={value}")), format!("pages={value}: {pages}"));
    }
    for value in ["0", "", "all", "1,,2", "4294967296", "1,whole,"] {
        let word = format!("grains={value}");
        let way = "grains is flush grains with commas between: whole numbers from 1 on, or whole";
        assert_eq!(flush(&word), format!("{word}: {way}"));
    }
    for word in ["bytes=1m", "bytes=0", "bytes=2g", "bytes=3m", "bytes=2µ", "bytes="] {
        let said = refused(Scenario::Faults, word);
        assert_eq!(said, format!("{word}: bytes is a multiple of 2m, at most 1g"));
    }
    for word in ["sizes=8k", "sizes=1g", "sizes=4k,5k", "sizes=", "sizes=4k;64k"] {
        assert!(refused(Scenario::Faults, word).starts_with(word));
    }
}

#[test]
fn what_is_not_given_is_the_default_and_the_last_word_counts() {
    let texts = |words: &[&str]| {
        let parameters = Parameters::parse(Scenario::Flush, words.iter().copied()).unwrap();
        parameters.words().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(texts(&[]), "pages=512 grains=1,whole");
    assert_eq!(texts(&["grains=7", "pages=1", "pages=9"]), "pages=9 grains=7");
}

/// A default that its own kind refuses would be missing.
#[test]
fn every_parameter_has_a_default_that_it_can_be() {
    for scenario in Scenario::ALL {
        let parameters = Parameters::parse(*scenario, []).unwrap();
        assert_eq!(parameters.words().count(), scenario.about().parameters.len(), "{scenario}");
        let name = scenario.to_string();
        assert_eq!(name.parse(), Ok(*scenario));
    }
    let unknown = "fault".parse::<Scenario>().unwrap_err().to_string();
    assert_eq!(
        unknown,
        "there is no such scenario; there are faults, flush, zero, hugetlb, vmalloc, split, thpscale, compare"
    );
}

#[test]
fn a_report_is_one_line_that_reads_back() {
    let report = Report {
        scenario: "flush".into(),
        machine: "kernel".into(),
        cpus: 4,
        parameters: Named::from_iter([("pages", "512".to_owned())]),
        page: "4k".into(),
        rows: vec![Row {
            name: "unmap, grain 1".into(),
            counts: Named::from_iter([("shootdowns", 513), ("faults", u64::MAX)]),
            pages: 512,
            ticks: Named::from_iter([("all", 7)]),
        }],
        ratios: vec![Ratio { name: "a \"quoted\"\nname".into(), of: 513, to: 1 }],
    };
    let line = report.line();
    assert!(line.starts_with('{') && !line.contains('\n'), "{line}");
    assert!(line.contains(r#""counts":{"shootdowns":513,"faults":18446744073709551615}"#));
    assert_eq!(Report::parse(&line).unwrap(), report);
    assert!(Report::parse(&line[1..]).is_err());
}
