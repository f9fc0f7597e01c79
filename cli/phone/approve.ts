import type { Command } from 'cac';
import { describeError, RelayError } from '../../lib/errors.ts';
import { isObject, type JsonObject, parseObject } from '../../lib/kit/json.ts';
import type { Verdict } from '../../lib/operations/approve.ts';
import { parseDuration } from '../../lib/pairing/duration.ts';
import { loadEnvironment } from '../environment.ts';
import { keepAlive } from '../keep-alive.ts';
import { addressOf, createRelayFetch, endpointOf } from '../mcp/connection.ts';
import { type McpPairing, openPairings } from '../mcp/pairings.ts';
import { asText, type Options, option } from '../options.ts';
import { type CommandContext, quote, UsageError } from '../output.ts';
import { readAll } from '../stdin.ts';

/** Seconds. Hooks of Claude Code end after 600 by default. */
const DEFAULT_TIMEOUT = 300;
const MAX_TIMEOUT = 3600;
/** Milliseconds beyond it for the answer to arrive. */
const GRACE = 15_000;

type Agent = 'claude' | 'codex';

/** `svc phone approve`: answers the permission hook of a coding agent from the phone (contract 09 §7). */
export function define(command: Command): void {
  command
    .option('--for <agent>', 'whose hook it is: claude (default) or codex')
    .option('--timeout <duration>', 'deny after it: seconds, or 5m (default 5m). Give the hook a little longer')
    .option('--name <name>', "which session of 'svc mcp pair'")
    .example(
      (name) => `${name} approve < hook.json          # as Claude Code calls it: PermissionRequest or PreToolUse`,
    )
    .example((name) => `${name} approve --for codex < hook.json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const agent = option(options, '--for', asText) ?? 'claude';
  if (agent !== 'claude' && agent !== 'codex') throw new UsageError('--for must be claude or codex');
  const timeout = option(options, '--timeout', asTimeout) ?? DEFAULT_TIMEOUT;
  const hook = parseObject(await readAll(context, 'the JSON of the hook', 'the hook on stdin is longer than 256 KiB'));
  const { hook_event_name: event, tool_name: tool, tool_input: input = {} } = hook ?? {};
  const events = agent === 'claude' ? ['PermissionRequest', 'PreToolUse'] : ['PermissionRequest'];
  if (typeof event !== 'string' || !events.includes(event) || typeof tool !== 'string' || !isObject(input)) {
    throw new UsageError(`stdin is no hook of ${agent}: the JSON of ${events.join(' or ')} is expected`);
  }
  const name = option(options, '--name', asText);
  const verdict = await keepAlive(decide({ tool, input, timeout, name }, context));
  quote(context.stdout, JSON.stringify(outputOf(event, verdict, agent)));
}

function asTimeout(text: string): number {
  const seconds = parseDuration(text);
  if (seconds > 0 && seconds <= MAX_TIMEOUT) return seconds;
  throw new RelayError('invalid', 'must be from 1 second to 1 hour');
}

/** Asks the phone. Any failure denies, with the reason. */
async function decide(
  { tool, input, timeout, name }: { tool: string; input: JsonObject; timeout: number; name?: string },
  context: CommandContext,
): Promise<Verdict> {
  try {
    const { directories } = loadEnvironment(context.env);
    const pairing = (await openPairings(directories.agentHome, context)).require(name);
    const args = { tool_name: tool, input, timeout_s: timeout };
    const verdict = parseObject(await callTool(pairing, 'phone_approve', args, timeout * 1000 + GRACE, context));
    if (verdict?.behavior === 'allow') return { behavior: 'allow', updatedInput: input };
    const message = typeof verdict?.message === 'string' ? verdict.message : 'the relay gave no answer';
    return { behavior: 'deny', message, ...(verdict?.interrupt === true && { interrupt: true }) };
  } catch (error) {
    const next = (error as { next?: unknown }).next;
    const reason = `${describeError(error)}${typeof next === 'string' ? `. ${next}` : ''}`;
    return { behavior: 'deny', message: `the phone could not be asked: ${reason}` };
  }
}

async function callTool(
  pairing: McpPairing,
  name: string,
  args: JsonObject,
  timeout: number,
  context: CommandContext,
): Promise<string> {
  const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const transport = new StreamableHTTPClientTransport(endpointOf(await addressOf(pairing, context)), {
    requestInit: { headers: { authorization: `Bearer ${pairing.token}` } },
    fetch: await createRelayFetch(context),
  });
  const client = new Client({ name: 'svc phone approve', version: context.ownPackage.version });
  try {
    await client.connect(transport);
    const result = await client.callTool({ name, arguments: args }, { timeout });
    const [first] = result.content as { text?: string }[];
    return first?.text ?? '';
  } finally {
    await transport.terminateSession().catch(() => {});
    await client.close().catch(() => {});
  }
}

/** The answer in the format of a hook's event. */
function outputOf(event: string, verdict: Verdict, agent: Agent): JsonObject {
  const isAllowed = verdict.behavior === 'allow';
  if (event === 'PreToolUse') {
    return {
      hookSpecificOutput: {
        hookEventName: event,
        permissionDecision: verdict.behavior,
        permissionDecisionReason: isAllowed ? 'the owner allowed this on the phone' : verdict.message,
      },
      ...(!isAllowed && verdict.interrupt && { continue: false, stopReason: verdict.message }),
    };
  }
  // Codex refuses members that it does not know yet.
  const decision =
    agent === 'claude' ? verdict : isAllowed ? { behavior: 'allow' } : { behavior: 'deny', message: verdict.message };
  return { hookSpecificOutput: { hookEventName: event, decision } };
}
