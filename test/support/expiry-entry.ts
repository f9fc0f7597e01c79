import worker, { RelayObject as DeployedRelay } from '../../cli/runtime/edge/worker.ts';

type State = ConstructorParameters<typeof DeployedRelay>[0];
interface Env extends NonNullable<ConstructorParameters<typeof DeployedRelay>[1]> {
  SHIFT_DAYS?: string;
  KV_FAILS?: string;
  /** Asked before a name is put: it goes in once this has answered. */
  PUTS?: { fetch(url: string): Promise<unknown> };
}

const real = Date.now.bind(Date);

/** Variables with names that cannot be written while `KV_FAILS` is set, or only once `PUTS` has answered. */
function withNames(env: Env): Env {
  const { TENANTS, KV_FAILS, PUTS } = env;
  if (!TENANTS) return env;
  const fails = () => Promise.reject(new Error('KV is down'));
  const names = {
    get: TENANTS.get.bind(TENANTS),
    list: TENANTS.list.bind(TENANTS),
    delete: KV_FAILS ? fails : TENANTS.delete.bind(TENANTS),
    async put(...given: Parameters<typeof TENANTS.put>) {
      await PUTS?.fetch('http://puts.test/');
      return KV_FAILS ? fails() : TENANTS.put(...given);
    },
  };
  return { ...env, TENANTS: names as unknown as typeof TENANTS };
}

/** The deployed object on a clock that `SHIFT_DAYS` moves, and with the names of `withNames`. */
export class RelayObject extends DeployedRelay {
  constructor(state: State, env: Env) {
    // For every object of this isolate, all of which have the same variable.
    Date.now = () => real() + Number(env.SHIFT_DAYS ?? 0) * 86_400_000;
    super(state, withNames(env));
  }

  /** Rings the alarm now, as the platform does at its time. */
  ring(): Promise<void> {
    return this.alarm();
  }

  /** What is stored beside the stores, and when the alarm is to ring, epoch ms. */
  async facts() {
    const { storage } = this.ctx;
    const keys = [...(await storage.list()).keys()].sort();
    return { keys, alarm: await storage.getAlarm(), tables: this.tables() };
  }

  private tables(): number {
    const sql = "SELECT count(*) AS count FROM sqlite_master WHERE name IN ('items', 'parts', 'lookups')";
    return Number(this.ctx.storage.sql.exec(sql).one().count);
  }
}

export default { fetch: (request: Request, env: Env) => worker.fetch(request, withNames(env)) };
