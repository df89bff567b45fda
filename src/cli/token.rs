//! `colloquy token`: mints a token on the command line, signed with the server's secret.

use std::time::Duration;

use anyhow::{Context, bail};

use super::process::block_on;
use crate::{
    app::{self, auth_settings, data_folder::secret_path},
    config::Config,
};
use colloquy_core::{
    ids::{PlayerId, TenantId, WorldId},
    scope::Role,
};
use colloquy_ports::clock::{Clock, SystemClock};
use colloquy_tenancy::auth::{TokenClaims, mint_token};

#[derive(Debug, clap::Args)]
pub(super) struct TokenArgs {
    /// The token's tenant.
    #[arg(long)]
    tenant: TenantId,
    /// operator, admin, backend, viewer (reads the same data as a backend) or player.
    #[arg(long, value_parser = parse_role)]
    role: Role,
    /// The player's id; only for the role player.
    #[arg(long)]
    player: Option<PlayerId>,
    /// The only world of a backend, viewer or player token. Without it, the token is valid for all worlds.
    #[arg(long)]
    world: Option<WorldId>,
    /// The token's lifetime: 90s, 30m, 12h, 7d.
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    ttl: Duration,
}

pub(super) fn run(args: &TokenArgs, config: &Config) -> anyhow::Result<()> {
    if (args.role == Role::Player) != args.player.is_some() {
        bail!("--player names the player of a token with --role player, and of no other");
    }
    if args.world.is_some() && matches!(args.role, Role::Operator | Role::Admin) {
        bail!(
            "--world binds a token of a backend, a viewer or a player to one world; others reach all of their tenant"
        );
    }
    let claims = TokenClaims {
        sub: args
            .player
            .as_ref()
            .map_or_else(|| "command-line".to_owned(), ToString::to_string),
        tid: args.tenant.clone(),
        role: args.role,
        pid: args.player.clone(),
        wid: args.world.clone(),
    };
    println!("{}", sign_token(config, &claims, args.ttl)?);
    // The server may use another ledger, so an unreadable ledger here is no reason for a warning.
    if matches!(block_on(app::has_tenant(config, &args.tenant)), Ok(false)) {
        eprintln!(
            "warning: the ledger {} has no tenant {}; until it does, this token is refused",
            config.ledger_name(),
            args.tenant
        );
    }
    Ok(())
}

/// Signs `claims` with the keys of a server that runs with `config`. Where there is no secret yet, makes one, and says so
/// on standard error: a server in another folder would refuse the token.
pub(super) fn sign_token(config: &Config, claims: &TokenClaims, ttl: Duration) -> anyhow::Result<String> {
    let secret = secret_path(&config.data_dir);
    let is_new = config.auth.needs_secret() && !secret.exists();
    let settings = auth_settings(config)?;
    if is_new {
        eprintln!(
            "made a new secret: {}\nThe server must run in this folder, or with the same data_dir \
             (COLLOQUY__DATA_DIR); otherwise it refuses the token.",
            secret.display()
        );
    }
    mint_token(&settings, claims, ttl, SystemClock.now())
        .map(|token| token.text)
        .context("cannot make a token")
}

fn parse_role(text: &str) -> Result<Role, String> {
    match text {
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        "backend" => Ok(Role::Backend),
        "viewer" => Ok(Role::Viewer),
        "player" => Ok(Role::Player),
        _ => Err("must be operator, admin, backend, viewer or player".into()),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a number and s, m, h or d, such as 90s or 12h".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    match count.checked_mul(seconds) {
        Some(1..=315_360_000) => Ok(Duration::from_secs(count * seconds)),
        _ => Err("must be from 1s to 3650d".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit_and_bounds() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_hours(1)));
        for bad in ["", "h", "1", "1w", "-1h", "0s", "1.5h", "99999999999999999d", "1시"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
