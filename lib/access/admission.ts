import { RelayError } from '../errors.ts';

export interface AdmissionLimits {
  perOwner: number;
  /** Of all owners together. */
  most: number;
  /** What who comes on top is told. */
  refusal: string;
  /** Seconds after which to try again. */
  retryAfter: number;
}

/** Runs `work` unless too much runs already. @throws RelayError `rate-limited`, and whatever `work` throws. */
export type Admission = <T>(owner: string, work: () => Promise<T>) => Promise<T>;

/** Keeps count of work that holds memory or disk: only so much of it may run at a time, of one owner and in all. */
export function createAdmission({ perOwner, most, refusal, retryAfter }: AdmissionLimits): Admission {
  const running = new Map<string, number>();
  let all = 0;
  return async (owner, work) => {
    const own = running.get(owner) ?? 0;
    if (own >= perOwner || all >= most) throw new RelayError('rate-limited', refusal, { retryAfter });
    running.set(owner, own + 1);
    all++;
    try {
      return await work();
    } finally {
      all--;
      const left = (running.get(owner) ?? 1) - 1;
      if (left > 0) running.set(owner, left);
      else running.delete(owner);
    }
  };
}
