import type { Command } from 'cac';
import { readConfig } from '../../lib/config.ts';
import { randomBytes } from '../../lib/kit/bytes.ts';
import { QR_SECRET_SIZE, qrSecretPath } from '../../lib/pairing/secret.ts';
import { ACTIONS } from '../actions.ts';
import { loadEnvironment } from '../environment.ts';
import { actionOf, flag, type Options } from '../options.ts';
import { type CommandContext, printable, printJson, sentence } from '../output.ts';
import { dayOf, madeAt, needsRestart, RESTART, replaceKey } from './key-file.ts';

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
  const { env, places } = loadEnvironment(context.env);
  const isJson = flag(options, '--json');
  const { files } = await context.createHost(places.agentHome);
  const path = qrSecretPath(places.agentHome);
  if (action === 'status') {
    const made = await madeAt(path, files);
    if (isJson) return printJson(context.stdout, { ok: true, path, made_at: made });
    const text = made === null ? 'there is none yet; the first pairing code makes it' : `made on ${dayOf(made)}`;
    sentence(context.stdout, `The key that signs pairing codes: ${text}, ${printable(path)}`);
    sentence(context.stdout, 'To replace it: svc relay qr-key rotate');
    return;
  }
  await replaceKey(path, randomBytes(QR_SECRET_SIZE), files);
  const restart = needsRestart(readConfig(env, places).config, context);
  if (isJson) return printJson(context.stdout, { ok: true, rotated: path, devices_to_pair: [], restart });
  sentence(context.stdout, `There is a new key in ${printable(path)}. No paired device has to pair again.`);
  sentence(
    context.stdout,
    restart ? RESTART : 'Codes that were shown before pair nothing any more, as far as they are not used.',
  );
  sentence(context.stdout, 'Next: svc pair');
}
