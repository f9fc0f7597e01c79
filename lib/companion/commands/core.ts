import type { Handler } from '../gates/gate.ts';

export const ping: Handler = ({ env }) => ({ pong: true, ts: env.clock.now() });

export const setup: Handler = ({ env }) => ({
  ok: true,
  note: `${env.device.info().name} is connected. Its owner decides on the phone what may be done.`,
});

export const currentApp: Handler = ({ env }) => ({ package: env.device.info().foreground ?? 'unknown' });

/** Unique launchable packages, under the first label each has. */
export const getApps: Handler = async ({ env }) => {
  const apps = new Map<string, { package: string; label: string }>();
  for (const { package: name, label } of await env.device.apps()) {
    if (!apps.has(name)) apps.set(name, { package: name, label });
  }
  return { apps: [...apps.values()], count: apps.size };
};
