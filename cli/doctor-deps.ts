import { type Config, variables } from '../lib/config.ts';
import { probe } from '../lib/host/node/probe.ts';
import { systemClock } from '../lib/kit/clock.ts';
import { apiBase, dashboardBase } from '../lib/operator/doctor/check.ts';
import type { DoctorDeps } from '../lib/operator/doctor/doctor.ts';
import { compatDeps } from './compat.ts';
import { type Environment, readVariable } from './environment.ts';
import type { CommandContext } from './output.ts';
import { serviceDeps } from './service.ts';

/** Milliseconds for all probes together, unless the caller says otherwise. */
const DOCTOR_TIMEOUT = 2000;

export interface DoctorChoices extends Pick<DoctorDeps, 'relay' | 'modules' | 'process'> {
  /** Port of the relay on this machine, also when another relay is examined. */
  port: number;
  /** Overrides of the variables that say where agent and dashboard are. */
  apiUrl?: string;
  dashboardUrl?: string;
  /** The relay's configuration, where it is valid. */
  config?: Config;
  /** Milliseconds. */
  timeout?: number;
}

/** Parts of the doctor, the same for the command and for a running relay (contract 07 §5.2, 09 §4). */
export async function doctorDeps(
  environment: Environment,
  installation: Pick<CommandContext, 'createHost' | 'ownPackage' | 'env'>,
  { relay, port, modules, process, apiUrl, dashboardUrl, config, timeout = DOCTOR_TIMEOUT }: DoctorChoices,
): Promise<DoctorDeps> {
  const { env } = environment;
  const compat = await compatDeps(environment, installation);
  return {
    version: installation.ownPackage.version,
    host: compat.host,
    clock: systemClock,
    probe,
    modules,
    compat,
    service: await serviceDeps(environment, installation, port),
    api: apiBase(apiUrl, env),
    dashboard: dashboardBase(dashboardUrl, env),
    relay,
    operator: {
      requireKey: readVariable(variables.requireOperatorKey, environment),
      uids: readVariable(variables.operatorUids, environment),
      hasKey: Object.keys(relay.headers ?? {}).length > 0,
      hasDesktopToken: Boolean(env.DESKTOP_RELAY_TOKEN?.trim()),
    },
    config,
    process,
    timeout,
  };
}
