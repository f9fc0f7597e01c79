import type { device } from '../../operations/device.ts';
import type { Intent } from '../device.ts';
import { type CommandCall, CommandFailure, type Handler, Refused } from '../gates/gate.ts';
import { isBlocked } from '../gates/standing.ts';
import { type ArgsOf, badRequest, type HandlerOf } from './args.ts';

/** @throws Refused when a target package is on the blocklist (contract 03 §8.1, gate 10). */
function refuseBlockedTargets({ env }: CommandCall, packages: (string | null)[]): void {
  for (const name of packages) {
    const trimmed = name?.trim() ?? null;
    if (isBlocked(env.settings, trimmed)) throw new Refused({ kind: 'blocked-package', package: trimmed });
  }
}

export const openApp: HandlerOf<typeof device.openApp> = async (call, { package: name }) => {
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

type IntentArgs = ArgsOf<typeof device.sendIntent>;

const intentOf = ({ device: _, ...intent }: IntentArgs): Intent => intent;

/** The package part of `package/class`. */
const componentPackage = ({ component }: Intent): string => component.split('/')[0] as string;

export const sendIntent: HandlerOf<typeof device.sendIntent> = async (call, args) => {
  const { device } = call.env;
  const intent = intentOf(args);
  refuseBlockedTargets(call, [intent.package, componentPackage(intent)]);
  const target = await device.resolve(intent);
  // An implicit intent names no package, so the package that it resolves to is checked.
  refuseBlockedTargets(call, [target]);
  if (target === null || !(await device.startActivity(intent))) throw badRequest('no activity for the intent');
  const { action, data } = intent;
  return { action, package: intent.package, component: intent.component, data };
};

export const broadcast: HandlerOf<typeof device.broadcast> = async (call, args) => {
  const intent = intentOf(args);
  refuseBlockedTargets(call, [intent.package, componentPackage(intent)]);
  await call.env.device.broadcast(intent);
  return { action: intent.action, package: intent.package, data: intent.data };
};
