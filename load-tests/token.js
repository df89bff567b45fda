// Tokens for the load tests, as by `colloquy token`: signed with SECRET and valid for two hours.
import crypto from "k6/crypto";
import encoding from "k6/encoding";

// role: "player" (with the player's id), "backend" or "admin".
export function token(role, player, tenant = "demo") {
  const b64 = (value) => encoding.b64encode(JSON.stringify(value), "rawurl");
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: player || "load", tid: tenant, role, aud: "colloquy", iat: now, exp: now + 7200 };
  if (player) claims.pid = player;
  const body = `${b64({ alg: "HS256", typ: "JWT" })}.${b64(claims)}`;
  return `${body}.${crypto.hmac("sha256", __ENV.SECRET, body, "base64rawurl")}`;
}

// The options of a JSON request.
export function headers(role, player, tenant) {
  return { headers: { Authorization: `Bearer ${token(role, player, tenant)}`, "Content-Type": "application/json" } };
}
