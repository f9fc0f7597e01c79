import { parseGrantNames } from '../../lib/pairing/duration.ts';
import { GRANTS } from '../../lib/sessions/grants.ts';
import { confirm } from '../confirm.ts';
import { loadConfig, loadEnvironment } from '../environment.ts';
import { asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, line, printable, printJson, printWarning, sentence } from '../output.ts';
import { findRelay } from '../pair/mint.ts';
import { createToolSession } from '../pair/token.ts';
import { remoteRelay } from '../remote-relay.ts';
import { addressOf, createRelayFetch, endpointOf } from './connection.ts';
import { DEFAULT_NAME, type McpPairing, openPairings, type Pairings, prefixOf } from './pairings.ts';

/** Grants that MCP tools need: an agent gets no shell, no chat and no voice. */
const USEFUL = ['phone', 'bridge', 'desktop', 'files', 'devices'];
/** Seconds. */
const TTL = 90 * 86_400;
const TIMEOUT = 5_000;

/** `svc mcp pair`: creates the session of this machine's agents, and stores its token (contract 09 §7). */
export async function pair(options: Options, context: CommandContext): Promise<number | void> {
  const name = option(options, '--name', asText) ?? DEFAULT_NAME;
  const only = option(options, '--only', parseGrantNames) ?? USEFUL;
  const environment = loadEnvironment(context.env);
  const pairings = await openPairings(environment.directories.agentHome, context);
  if (pairings.find(name) && !flag(options, '--yes')) {
    const question = `'${printable(name)}' is paired already. Replace its session? Programs that use it go on with the new one.`;
    const isSure = await confirm(
      context,
      question,
      `'${printable(name)}' is paired already: give --yes, or another --name`,
    );
    if (!isSure) {
      sentence(context.stderr, 'Nothing was changed.');
      return 1;
    }
  }
  const remote = await remoteRelay(options, environment);
  const { token, relay } = await createToolSession(
    {
      ttl: TTL,
      without: GRANTS.filter((grant) => !only.includes(grant)),
      name: name === DEFAULT_NAME ? 'MCP agents' : name,
    },
    remote ?? (await findRelay(loadConfig(context.env).config)),
    context,
  );
  const end = async (which: 'old' | 'new', pairing: McpPairing) => {
    await revokeSession(pairing, context).catch(() => {
      const prefix = prefixOf(pairing);
      printWarning(
        context,
        `the ${which} session ${prefix} could not be ended. End it with: svc devices revoke ${prefix}`,
      );
    });
  };
  const made: McpPairing = {
    name,
    token,
    ...(relay.url !== undefined && { url: relay.url }),
    created_at: Math.floor(Date.now() / 1000),
  };
  const old = await pairings.put(made).catch(async (error) => {
    // Nobody has its token.
    await end('new', made);
    throw error;
  });
  // Not earlier: if there is no new session, the old one stays.
  if (old) await end('old', old);
  const prefix = prefixOf({ token });
  if (flag(options, '--json'))
    return printJson(context.stdout, { paired: true, name, session: prefix, grants: only, path: pairings.path });
  sentence(context.stdout, `Paired as '${printable(name)}' (session ${prefix}) with the grants ${only.join(', ')}.`);
  line(context.stdout, 'Add it to a program with: svc mcp install claude   (or codex, cursor, gemini, vscode)');
}

/** `svc mcp revoke`: ends the session and forgets its token. */
export async function revoke(
  name: string | undefined,
  options: Options,
  context: CommandContext,
): Promise<number | void> {
  const { directories } = loadEnvironment(context.env);
  const pairings = await openPairings(directories.agentHome, context);
  const pairing = pairings.require(name);
  if (!flag(options, '--yes')) {
    const question = `Revoke '${printable(pairing.name)}'? Agents that use it lose the phone at once.`;
    if (!(await confirm(context, question, 'there is no terminal to confirm on: give --yes'))) {
      sentence(context.stderr, 'Nothing was changed.');
      return 1;
    }
  }
  const state = await revokeSession(pairing, context).catch((error) => {
    throw new CommandError(
      `the relay did not revoke '${printable(pairing.name)}': ${error instanceof Error ? error.message : error}`,
      'Nothing was changed. Start the relay with: svc relay start',
    );
  });
  await pairings.remove(pairing);
  if (flag(options, '--json'))
    return printJson(context.stdout, { revoked: true, name: pairing.name, session: prefixOf(pairing) });
  sentence(
    context.stdout,
    state === 'ended' ? `'${printable(pairing.name)}' had ended already.` : `Revoked '${printable(pairing.name)}'.`,
  );
}

const call = async (pairing: McpPairing, method: 'GET' | 'DELETE', path: string, context: CommandContext) => {
  const url = new URL(path, endpointOf(await addressOf(pairing, context)));
  const relayFetch = await createRelayFetch(context);
  const headers = { authorization: `Bearer ${pairing.token}` };
  const answer = await relayFetch(url, { method, headers, signal: AbortSignal.timeout(TIMEOUT) });
  await answer.body?.cancel();
  return answer;
};

async function revokeSession(pairing: McpPairing, context: CommandContext): Promise<'revoked' | 'ended'> {
  const answer = await call(pairing, 'DELETE', `/sessions/${encodeURIComponent(prefixOf(pairing))}`, context);
  if (answer.ok) return 'revoked';
  if (answer.status === 401 || answer.status === 404) return 'ended';
  throw new Error(`HTTP ${answer.status}`);
}

/** `svc mcp list`: the pairings of this machine, and whether they still work. */
export async function list(options: Options, context: CommandContext): Promise<void> {
  const { directories } = loadEnvironment(context.env);
  const pairings: Pairings = await openPairings(directories.agentHome, context);
  const rows = await Promise.all(
    pairings.all().map(async (pairing) => {
      const { name, url, created_at } = pairing;
      const answer = await call(pairing, 'GET', '/sessions', context).catch(() => undefined);
      const state = !answer ? 'unreachable' : answer.ok ? 'works' : answer.status === 401 ? 'ended' : 'refused for now';
      return { name, session: prefixOf(pairing), relay: url ?? 'this machine', state, created_at };
    }),
  );
  if (flag(options, '--json')) return printJson(context.stdout, { pairings: rows });
  if (rows.length === 0) return sentence(context.stdout, 'No agent of this machine is paired. Pair with: svc mcp pair');
  for (const { name, session, relay, state } of rows) {
    line(context.stdout, `${printable(name)}  ${session}  ${state}  ${printable(relay)}`);
  }
}
