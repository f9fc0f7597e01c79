import type { Command } from 'cac';
import { type Config, readConfig } from '../../lib/config.ts';
import { randomBytes } from '../../lib/kit/bytes.ts';
import { asObject } from '../../lib/kit/json.ts';
import { QR_SECRET_SIZE, qrSecretPath } from '../../lib/pairing/secret.ts';
import { ACTIONS } from '../actions.ts';
import { loadEnvironment } from '../environment.ts';
import { actionOf, flag, type Options } from '../options.ts';
import { type CommandContext, printable, printJson, sentence } from '../output.ts';
import { callRelay, localRelay } from '../relay-client.ts';
import { dayOf } from '../times.ts';
import { madeAt, needsRestart, RESTART, replaceKey } from './key-file.ts';

/** Milliseconds. */
const TIMEOUT = 2000;

/** `svc relay qr-key [status|rotate]` (contract 11 §3). */
export function define(command: Command): void {
  command
    .option('--json', 'print one JSON document')
    .example((name) => `${name} qr-key            # status`)
    .example((name) => `${name} qr-key rotate`)
    .action(run);
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const action = actionOf(word, ...ACTIONS['qr-key']);
  const { env, directories } = loadEnvironment(context.env);
  const isJson = flag(options, '--json');
  const { files } = await context.createHost(directories.agentHome);
  const path = qrSecretPath(directories.agentHome);
  if (action === 'status') {
    const made = await madeAt(path, files);
    if (isJson) return printJson(context.stdout, { ok: true, path, made_at: made });
    const text = made === null ? 'there is none yet; the first pairing code makes it' : `made on ${dayOf(made)}`;
    sentence(context.stdout, `The key that signs pairing codes: ${text}, ${printable(path)}`);
    sentence(context.stdout, 'To replace it: svc relay qr-key rotate');
    return;
  }
  const { config } = readConfig(env, directories);
  const before = await unusedCodes(config);
  await replaceKey(path, randomBytes(QR_SECRET_SIZE), files);
  const restart = needsRestart(config, context);
  const after = restart ? null : await unusedCodes(config);
  const withdrawn = before === null || after === null ? null : Math.max(0, before - after);
  if (isJson) return printJson(context.stdout, { ok: true, rotated: path, devices_to_pair: [], withdrawn, restart });
  sentence(context.stdout, `There is a new key in ${printable(path)}. No paired device has to pair again.`);
  sentence(context.stdout, restart ? RESTART : withdrawnText(withdrawn));
  sentence(context.stdout, 'Next: svc pair');
}

/** Number of codes that can be used at the relay of this machine; null when it does not say. */
async function unusedCodes(config: Config): Promise<number | null> {
  const call = { method: 'GET', path: '/pairing/pending', timeout: TIMEOUT } as const;
  const answer = await callRelay(localRelay(config), call).catch(() => null);
  const { codes } = asObject(answer?.body) ?? {};
  return Array.isArray(codes) ? codes.length : null;
}

function withdrawnText(count: number | null): string {
  if (count === 0) return 'No unused code was waiting.';
  if (count === 1) return '1 unused code from before is withdrawn: it pairs nothing.';
  return `${count === null ? 'Unused' : `${count} unused`} codes from before are withdrawn: they pair nothing.`;
}
