#![allow(clippy::unwrap_used)]

use super::*;
use colloquy_ports::clock::ManualClock;

const TOKENS: Usage = Usage {
    prompt_tokens: 60,
    cached_tokens: 50,
    completion_tokens: 20,
};

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn budgets(settings: BudgetSettings) -> (Budgets, Arc<ManualClock>) {
    let at = "2031-05-04T22:00:00Z".parse().unwrap();
    let clock = ManualClock::starting_at(at);
    let price = ["m=1000000/0/1000000".parse().unwrap()];
    let meters = Arc::new(ModelMetrics::new(0, &price));
    (Budgets::new(settings, meters, clock.clone()), clock)
}

fn spend(budgets: &Budgets, name: &str) {
    let day = budgets.clock.now().date_naive();
    budgets.record_spending(&tenant(name), None, day, "m", TOKENS);
}

#[test]
fn daily_budget_is_per_tenant_and_resets_each_day() {
    let (budgets, clock) = budgets(BudgetSettings {
        tokens_per_day: 150,
        ..BudgetSettings::default()
    });
    let a = tenant("a");
    spend(&budgets, "a");
    assert_eq!(budgets.check_daily_budget(&a), Ok(()));
    spend(&budgets, "a");
    let over = budgets.check_daily_budget(&a).unwrap_err();
    assert_eq!(over.budget, Budgeted::TokensPerDay);
    assert_eq!(over.retry_after, Duration::from_hours(2));
    assert_eq!(budgets.check_daily_budget(&tenant("b")), Ok(()));

    clock.advance(Duration::from_hours(3));
    assert_eq!(budgets.check_daily_budget(&a), Ok(()));
    // A call that ended before midnight and is counted afterwards.
    let yesterday = clock.now().date_naive() - Days::new(1);
    budgets.record_spending(&a, None, yesterday, "m", TOKENS);
    spend(&budgets, "a");
    assert_eq!(budgets.check_daily_budget(&a), Ok(()), "only one call is of today");
    spend(&budgets, "a");
    assert!(budgets.check_daily_budget(&a).is_err());
}

#[test]
fn tenant_budget_overrides_the_default() {
    let (budgets, _) = budgets(BudgetSettings {
        tokens_per_day: 70,
        ..BudgetSettings::default()
    });
    for name in ["more", "any", "less", "as-all"] {
        spend(&budgets, name);
    }
    let own = |tokens, cost| TenantBudget {
        tokens_per_day: tokens,
        cost_per_day: cost,
        ..TenantBudget::default()
    };
    budgets.set_own(&tenant("more"), Some(own(Some(81), None)));
    budgets.set_own(&tenant("any"), Some(own(Some(0), None)));
    // Ten uncached prompt tokens and twenty completion tokens, at a price of one each.
    budgets.set_own(&tenant("less"), Some(own(Some(1_000), Some(30.0))));
    assert_eq!(budgets.check_daily_budget(&tenant("more")), Ok(()));
    assert_eq!(budgets.check_daily_budget(&tenant("any")), Ok(()));
    assert_eq!(
        budgets.check_daily_budget(&tenant("less")).unwrap_err().budget,
        Budgeted::CostPerDay
    );
    assert_eq!(
        budgets.check_daily_budget(&tenant("as-all")).unwrap_err().budget,
        Budgeted::TokensPerDay
    );
    budgets.set_own(&tenant("more"), None);
    assert!(budgets.check_daily_budget(&tenant("more")).is_err());
}

#[test]
fn jobs_leave_part_of_the_daily_budget_to_turns() {
    let (budgets, _) = budgets(BudgetSettings {
        tokens_per_day: 88,
        ..BudgetSettings::default()
    });
    let a = tenant("a");
    assert!(budgets.can_run_jobs(&a));
    spend(&budgets, "a");
    assert!(!budgets.can_run_jobs(&a), "nine tenths are used");
    assert_eq!(budgets.check_daily_budget(&a), Ok(()));
}

#[test]
fn player_has_a_share_of_each_budget_and_leaves_the_rest_to_others() {
    let (budgets, clock) = budgets(BudgetSettings {
        tokens_per_day: 1_000,
        turns: 200,
        player_share: 0.1,
        ..BudgetSettings::default()
    });
    let a = tenant("a");
    let [one, two]: [PlayerId; 2] = ["p1", "p2"].map(|player| player.parse().unwrap());
    assert!(budgets.counts_players(&a));
    let spend = || budgets.record_spending(&a, Some(&one), clock.now().date_naive(), "m", TOKENS);
    spend();
    assert_eq!(budgets.check_turn(&a, Some(&one)), Ok(()));
    spend();
    let over = budgets.check_turn(&a, Some(&one)).unwrap_err();
    assert_eq!((over.budget, over.of_player()), (Budgeted::TokensPerDay, true));
    assert_eq!(over.retry_after, Duration::from_hours(2));
    for other in [Some(&two), None] {
        assert_eq!(budgets.check_turn(&a, other), Ok(()));
    }
    assert_eq!(budgets.check_turn(&tenant("b"), Some(&one)), Ok(()));
    clock.advance(Duration::from_hours(3));
    assert_eq!(budgets.check_turn(&a, Some(&one)), Ok(()), "a new day");

    let turns = (0..20)
        .filter(|_| budgets.reserve_player_turn(&a, &one).unwrap().is_some())
        .count();
    assert_eq!(turns, 20);
    assert_eq!(
        budgets.reserve_player_turn(&a, &one).unwrap_err().budget,
        Budgeted::Turns
    );
    assert_eq!(budgets.reserve_player_turn(&a, &two), Ok(Some(two)));
    budgets.release_player_turn(&a, &one);
    assert!(
        budgets.reserve_player_turn(&a, &one).is_ok(),
        "a turn that was not stored"
    );
}

#[test]
fn share_of_a_player_has_a_least_number_of_rows_and_can_be_switched_off() {
    let budget = |player_share| BudgetSettings {
        turns: 30,
        cost_per_day: 30.0,
        player_share,
        ..BudgetSettings::default()
    };
    assert_eq!(budget(0.1).player_limit_for(None, Budgeted::Turns), Some(10.0));
    assert_eq!(budget(0.5).player_limit_for(None, Budgeted::Turns), Some(15.0));
    assert_eq!(budget(0.1).player_limit_for(None, Budgeted::CostPerDay), Some(3.0));
    assert_eq!(budget(0.1).player_limit_for(None, Budgeted::TokensPerDay), None);
    assert_eq!(budget(1.0).player_limit_for(None, Budgeted::Turns), None);
}
