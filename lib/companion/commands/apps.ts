import type { Intent } from '../device.ts';
import { type CommandCall, CommandFailure, type Handler, Refused } from '../gates/gate.ts';
import { isBlocked } from '../gates/standing.ts';
import { type Args, badRequest, required, stringMap, text } from './args.ts';

const COMPONENT = /^([^/\s]+)\/[^/\s]+$/;

/** @throws Refused when a target package is on the blocklist (contract 03 §8.1, gate 10). */
function refuseBlockedTargets({ env }: CommandCall, packages: (string | null)[]): void {
  for (const name of packages) {
    const trimmed = name?.trim() ?? null;
    if (isBlocked(env.settings, trimmed)) throw new Refused({ kind: 'blocked-package', package: trimmed });
  }
}

export const openApp: Handler = async (call) => {
  const name = required(call.args, 'package').trim();
  refuseBlockedTargets(call, [name]);
  if (!(await call.env.device.launch(name))) throw new CommandFailure(404, `no launch intent for ${name}`);
  return { ok: true, package: name };
};

export const returnToHermes: Handler = async ({ env }) => {
  const { applicationId, foreground } = env.device.info();
  if (foreground === applicationId) return { ok: true, package: applicationId, note: 'already foreground' };
  if (!(await env.device.launch(applicationId))) throw new CommandFailure(500, 'the companion could not be launched');
  return { ok: true, package: applicationId };
};

function intentOf(args: Args): Intent {
  const component = text(args, 'component') ?? '';
  if (component !== '' && !COMPONENT.test(component)) throw badRequest('component must be package/class');
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
  refuseBlockedTargets(call, [intent.package, componentPackage(intent)]);
  const target = await device.resolve(intent);
  // An implicit intent names no package, so check the one it resolves to.
  refuseBlockedTargets(call, [target]);
  if (target === null || !(await device.startActivity(intent))) throw badRequest('no activity for the intent');
  const { action, data } = intent;
  return { action, package: intent.package, component: intent.component, data };
};

export const broadcast: Handler = async (call) => {
  const intent = intentOf(call.args);
  refuseBlockedTargets(call, [intent.package, componentPackage(intent)]);
  await call.env.device.broadcast(intent);
  return { action: intent.action, package: intent.package, data: intent.data };
};
