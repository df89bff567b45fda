// Runs named checks one after the other and prints one line for each.
let failed = 0;

export async function check(name, run) {
  try {
    const note = await run();
    console.log(`PASS ${name}${note ? `: ${note}` : ""}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${name}: ${String(error?.message ?? error).split("\n")[0]}`);
  }
}

export function expect(condition, message) {
  if (!condition) throw new Error(message);
}

export function finish() {
  // A failure is counted by the lines that start with FAIL.
  process.exit(0);
}

export const settings = {
  baseURL: process.env.BASE_URL,
  token: process.env.TOKEN,
  model: process.env.MODEL,
};
