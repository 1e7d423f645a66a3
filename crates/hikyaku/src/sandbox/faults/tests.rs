use super::*;

fn start() -> Timestamp {
    "2026-11-30T00:00:00Z".parse().unwrap()
}

#[test]
fn every_kind_is_in_the_list_that_messages_give_and_in_the_plan_of_everything() {
    for kind in KINDS {
        let plan = match kind {
            "rotated-secret" => format!("fault = [{{ kind = {kind:?}, at = \"1h\", secret = \"new\" }}]"),
            _ if ALL.contains(&format!("{kind:?}, share")) => {
                format!("fault = [{{ kind = {kind:?}, share = 1 }}]").replace("= 1 ", "= 1.0 ")
            }
            _ => format!("fault = [{{ kind = {kind:?}, every = \"1h\" }}]"),
        };
        Plan::parse(&plan).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(kind == "rotated-secret" || ALL.contains(&format!("{kind:?}")), "{kind}");
    }
    assert_eq!(Plan::all().shared.len() + Plan::all().timed.len(), KINDS.len() - 1);
}

#[test]
fn what_cannot_be_is_refused_with_its_line_and_the_reason() {
    let cases = [
        ("[[fault]]\nkind = \"nonsense\"", "line 2: \"nonsense\" is no kind of fault; there are duplicate, "),
        ("\n\n[[fault]]\nkind = \"drop\"", "line 4: \"drop\" needs a `share`"),
        ("[[fault]]\nkind = \"drop\"\nshare = 1.5", "from 0.0 to 1.0"),
        ("[[fault]]\nkind = \"drop\"\nshare = 0.5\nevery = \"1h\"", "happens in a `share`"),
        ("[[fault]]\nkind = \"restart\"", "needs `at` or `every`"),
        ("[[fault]]\nkind = \"restart\"\nshare = 0.5", "not in a share"),
        ("[[fault]]\nkind = \"restart\"\nat = \"soon\"", "\"soon\" is not a length of time"),
        ("[[fault]]\nkind = \"restart\"\nevery = \"0s\"", "\"0s\" is not a length of time"),
        ("[[fault]]\nkind = \"restart\"\nat = \"90d\"", "is not a length of time"),
        ("[[fault]]\nkind = \"burst\"\nat = \"1h\"\ncount = 0", "`count` must be between"),
        ("[[fault]]\nkind = \"rotated-secret\"\nat = \"1h\"", "`secret` belongs to"),
        ("[[fault]]\nkind = \"drop\"\nshare = 0.1\nsahre = 1", "unknown field `sahre`"),
        ("[[faults]]\nkind = \"drop\"", "unknown field `faults`"),
        ("kind", "expected"),
    ];
    for (plan, reason) in cases {
        let error = Plan::parse(plan).unwrap_err();
        assert!(error.contains(reason), "{plan}\n{error}");
    }
    assert_eq!(Plan::parse("").unwrap(), Plan::default());
}

#[test]
fn shares_are_kept_and_one_seed_draws_the_same() {
    let plan =
        Plan::parse("fault = [{ kind = \"drop\", share = 0.1 }, { kind = \"delay\", share = 0.5, by = \"10m\" }]")
            .unwrap();
    let draw = |seed| {
        let mut rng = Rng::with_seed(seed);
        (0..10_000).map(|_| plan.draw(&mut rng)).collect::<Vec<_>>()
    };
    let drawn = draw(7);
    assert_eq!(drawn, draw(7));
    let count = |fault| drawn.iter().flatten().filter(|drawn| drawn.fault == fault).count();
    assert!((900..1100).contains(&count(EventFault::Drop)), "{}", count(EventFault::Drop));
    assert!((4800..5200).contains(&count(EventFault::Delay)));
    assert!(drawn.iter().flatten().all(|drawn| drawn.by <= Duration::from_secs(20 * 60)));
}

#[test]
fn faults_at_times_come_once_or_again_and_again() {
    let plan = "fault = [{ kind = \"restart\", every = \"2h\" }, { kind = \"burst\", at = \"3h\", count = 5 }, { kind = \"month-boundary\" }]";
    let mut agenda = Plan::parse(plan).unwrap().agenda(start());
    let hours = |at: Timestamp| at.duration_since(start()).as_secs_f64() / 3600.0;
    let until = start().checked_add(Duration::from_secs(7 * 3600)).unwrap();
    let seen: Vec<_> = std::iter::from_fn(|| agenda.next(until)).map(|(at, fault, _)| (fault, hours(at))).collect();
    use TimedFault::{Burst, Restart};
    assert_eq!(seen, [(Restart, 2.0), (Burst, 3.0), (Restart, 4.0), (Restart, 6.0)]);
    let boundary = agenda.entries.iter().find(|(_, timed)| timed.fault == TimedFault::MonthBoundary).unwrap().0;
    assert_eq!(boundary, "2026-11-30T14:59:59.999Z".parse().unwrap());
    let mut agenda = Plan::parse("fault = [{ kind = \"month-boundary\" }]").unwrap().agenda(start());
    assert_eq!(agenda.next(boundary).unwrap().0, boundary);
    assert_eq!(agenda.next_at(), Some("2026-12-31T14:59:59.999Z".parse().unwrap()));
}
