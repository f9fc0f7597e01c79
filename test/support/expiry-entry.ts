import worker, { RelayObject as DeployedRelay } from '../../cli/runtime/edge/worker.ts';

type State = ConstructorParameters<typeof DeployedRelay>[0];
type Env = ConstructorParameters<typeof DeployedRelay>[1] & { SHIFT_DAYS?: string; KV_FAILS?: string };

const real = Date.now.bind(Date);

/** The deployed object on a clock that `SHIFT_DAYS` moves, and with names that cannot be written while `KV_FAILS` is set. */
export class RelayObject extends DeployedRelay {
  constructor(state: State, env: Env) {
    // For every object of this isolate, all of which have the same variable.
    Date.now = () => real() + Number(env.SHIFT_DAYS ?? 0) * 86_400_000;
    const TENANTS = { ...env.TENANTS, delete: () => Promise.reject(new Error('KV is down')) };
    super(state, env.KV_FAILS ? ({ ...env, TENANTS } as unknown as Env) : env);
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

export default worker;
