import type { Command } from 'cac';
import { newOperatorKey, operatorKeyPath } from '../../lib/access/operator-key.ts';
import { readConfig } from '../../lib/config.ts';
import { describeError } from '../../lib/errors.ts';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { ACTIONS } from '../actions.ts';
import { loadEnvironment } from '../environment.ts';
import { rotateOperatorSigner } from '../operator-signer.ts';
import { actionOf, flag, type Options } from '../options.ts';
import { type CommandContext, CommandError, printable, printJson, quote, sentence, UsageError } from '../output.ts';
import { dayOf } from '../times.ts';
import { madeAt, needsRestart, RESTART, replaceKey } from './key-file.ts';

/** `svc relay operator-key [status|rotate]` (contract 11 §3). */
export function define(command: Command): void {
  command
    .option('--edge', 'rotate: the key pair for relays at the edge instead')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} operator-key            # status`)
    .example((name) => `${name} operator-key rotate`)
    .example((name) => `${name} operator-key rotate --edge`)
    .action(run);
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const action = actionOf(word, ...ACTIONS['operator-key']);
  const isEdge = flag(options, '--edge');
  if (isEdge && action !== 'rotate') throw new UsageError("--edge belongs to 'rotate'");
  const { env, directories } = loadEnvironment(context.env);
  const { agentHome } = directories;
  const isJson = flag(options, '--json');
  const { files } = await context.createHost(agentHome);
  const path = operatorKeyPath(agentHome);
  const edgePath = `${path}.pem`;
  if (action === 'status') {
    const [made, madeEdge] = [await madeAt(path, files), await madeAt(edgePath, files)];
    if (isJson)
      return printJson(context.stdout, { ok: true, path, made_at: made, edge: { path: edgePath, made_at: madeEdge } });
    const text = (at: number | null) => (at === null ? 'there is none yet' : `made on ${dayOf(at)}`);
    sentence(context.stdout, `This machine: ${text(made)}, ${printable(path)}`);
    sentence(context.stdout, `Relays at the edge: ${text(madeEdge)}, ${printable(edgePath)}`);
    sentence(context.stdout, 'To replace one: svc relay operator-key rotate [--edge]');
    return;
  }
  if (isEdge) return rotateEdge(edgePath, agentHome, isJson, context);
  await replaceKey(path, utf8ToBytes(newOperatorKey()), files);
  const restart = needsRestart(readConfig(env, directories).config, context);
  if (isJson) return printJson(context.stdout, { ok: true, rotated: path, devices_to_pair: [], restart });
  sentence(context.stdout, `There is a new operator key in ${printable(path)}. No device has to pair again.`);
  sentence(
    context.stdout,
    restart ? RESTART : 'The old one is refused from now on. Commands read the file for each call.',
  );
}

async function rotateEdge(path: string, agentHome: string, isJson: boolean, context: CommandContext): Promise<void> {
  const { publicKey } = await rotateOperatorSigner(agentHome).catch((error) => {
    if (error instanceof CommandError) throw error;
    throw new CommandError(`${printable(path)} cannot be replaced: ${describeError(error)}`, 'Run this as its owner.');
  });
  const oneLine = publicKey.trim().replaceAll('\n', '\\n');
  if (isJson) return printJson(context.stdout, { ok: true, rotated: path, devices_to_pair: [], public_key: oneLine });
  sentence(context.stdout, `There is a new key pair in ${printable(path)}. No device has to pair again.`);
  sentence(
    context.stdout,
    'Relays at the edge refuse it, and accept the old one, until they are deployed with this line in wrangler.toml:',
  );
  quote(context.stdout, `  RELAY_OPERATOR_PUBLIC_KEY = "${oneLine}"`);
  sentence(context.stdout, 'Next: npx wrangler deploy');
}
