import type { ProbeResult } from '../../host/probe.ts';
import { isMapping } from '../../kit/yaml.ts';
import { type Check, fail, MORE_TIME, ok, outcome, warn } from './check.ts';

/** The modules a relay is made of, in the order they are tried. */
export interface RelayModules {
  /** The relay's entry. Without it no relay runs. */
  relay(): Promise<unknown>;
  /** The native module behind terminal sessions. Without it a relay runs, and has none. */
  terminal(): Promise<unknown>;
}

export interface ImportChain {
  ok: boolean;
  /** The first that does not load, else the last that does. */
  module: keyof RelayModules;
  error: string | null;
}

const MOST_ERROR = 300;

/** Loads both modules; what fails is the result. */
export async function tryImports(modules: RelayModules): Promise<ImportChain> {
  for (const module of ['relay', 'terminal'] as const) {
    try {
      await modules[module]();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return { ok: false, module, error: (text.split('\n')[0] as string).slice(0, MOST_ERROR) };
    }
  }
  return { ok: true, module: 'terminal', error: null };
}

const IMPORTS = 'relay-import-chain';

export function importCheck({ ok: loads, module, error }: ImportChain): Check {
  const id = IMPORTS;
  const again = 'Run npm install again, with the Node version that runs the relay.';
  if (loads) return ok(id, 'the relay and its terminal module load');
  if (module === 'terminal') {
    return warn(
      id,
      `the terminal module does not load: ${error}`,
      `${again} Without it there are no terminal sessions.`,
    );
  }
  return fail(id, `the relay does not load: ${error}`, again);
}

/** The verdict when time was up before the modules had loaded. */
export const unknownImports = (reason: string): Check =>
  warn(IMPORTS, `whether the relay loads is not known: ${reason}`, MORE_TIME);

/** Whether a relay answers on this machine, and whether it is this one. */
export function loopbackCheck(info: ProbeResult, version: string, port: number): Check {
  const id = 'relay-loopback';
  if (info.ok) {
    const running = isMapping(info.json) && typeof info.json.version === 'string' ? info.json.version : null;
    if (running === null) return ok(id, `port ${port} answers /relay/info, but does not say that it is svc-relay`);
    const other = running === version ? '' : `; ${version} is installed: restart it to run that`;
    return ok(id, `svc-relay ${running} answers on port ${port}${other}`);
  }
  const summary = `${info.url}: ${outcome(info)}`;
  if (info.status !== null) {
    return warn(
      id,
      summary,
      `Something else may listen on port ${port}: see what, or give the relay's with --relay-port.`,
    );
  }
  if (info.error === 'connection refused') {
    return warn(id, summary, 'Start it with: svc relay start (or let it run always: svc relay service install)');
  }
  return warn(id, summary, 'Restart the relay. If it runs without TLS, run this without RELAY_SSL_CERT.');
}
