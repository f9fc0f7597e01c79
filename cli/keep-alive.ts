/** Awaits `work` and keeps the process alive meanwhile, which the unref'ed timers of the system clock do not. */
export async function keepAlive<T>(work: Promise<T>): Promise<T> {
  const timer = setInterval(() => {}, 1 << 30);
  try {
    return await work;
  } finally {
    clearInterval(timer);
  }
}
