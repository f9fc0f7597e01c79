import type { Intent } from '../device.ts';
import { isBlocked } from '../gates/blocklist.ts';
import { type Call, CommandFailure, type Handler, Refused } from '../gates/gate.ts';
import { type Args, required, stringMap, text } from './args.ts';

const COMPONENT = /^([^/\s]+)\/[^/\s]+$/;

/** Refuses a command that would reach a blocklisted package (contract 03 §8.1, gate 10). */
function guardTargets({ env }: Call, packages: (string | null)[]): void {
  for (const name of packages) {
    const trimmed = name?.trim() ?? null;
    if (isBlocked(env.settings, trimmed)) throw new Refused({ kind: 'blocked-package', package: trimmed });
  }
}

export const openApp: Handler = async (call) => {
  const name = required(call.args, 'package').trim();
  guardTargets(call, [name]);
  if (!(await call.env.device.launch(name))) throw new CommandFailure(404, `no launch intent for ${name}`);
  return { ok: true, package: name };
};

export const returnToHermes: Handler = async ({ env }) => {
  const { applicationId, foreground } = env.device.info();
  if (foreground === applicationId) return { ok: true, package: applicationId, note: 'already foreground' };
  if (!(await env.device.launch(applicationId))) throw new CommandFailure(500, 'the companion did not come up');
  return { ok: true, package: applicationId };
};

function intentOf(args: Args): Intent {
  const component = text(args, 'component') ?? '';
  if (component !== '' && !COMPONENT.test(component)) throw new CommandFailure(400, 'component must be package/class');
  return {
    action: required(args, 'action'),
    data: text(args, 'data') ?? '',
    package: text(args, 'package') ?? '',
    component,
    category: text(args, 'category') ?? '',
    extras: stringMap(args, 'extras'),
  };
}

const componentPackage = (intent: Intent): string | null => COMPONENT.exec(intent.component)?.[1] ?? null;

export const sendIntent: Handler = async (call) => {
  const { device } = call.env;
  const intent = intentOf(call.args);
  guardTargets(call, [intent.package, componentPackage(intent)]);
  const target = await device.resolve(intent);
  // An implicit intent names no package, but ends up in one.
  guardTargets(call, [target]);
  if (target === null || !(await device.startActivity(intent)))
    throw new CommandFailure(400, 'no activity for the intent');
  const { action, data } = intent;
  return { action, package: intent.package, component: intent.component, data };
};

export const broadcast: Handler = async (call) => {
  const intent = intentOf(call.args);
  guardTargets(call, [intent.package, componentPackage(intent)]);
  await call.env.device.broadcast(intent);
  return { action: intent.action, package: intent.package, data: intent.data };
};
