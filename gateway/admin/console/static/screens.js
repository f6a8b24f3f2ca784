// The table of screens, in the order of the navigation. `roles` are those that see the screen.
const operators = ["operator"];
const all = ["operator", "tenant-admin"];

export const screens = [
  { path: "start", title: "Start", roles: all, load: () => import("./screens/start.js") },
  { path: "live", title: "Live", roles: operators, load: () => import("./screens/live.js") },
  { path: "requests", title: "Requests", roles: all, load: () => import("./screens/requests.js") },
  { path: "tenants", title: "Tenants", roles: all, load: () => import("./screens/tenants.js") },
  { path: "models", title: "Models", roles: all, load: () => import("./screens/models.js") },
  { path: "usage", title: "Usage", roles: all, load: () => import("./screens/usage.js") },
  { path: "policy", title: "Policy", roles: operators, load: () => import("./screens/policy.js") },
  { path: "playground", title: "Playground", roles: all, load: () => import("./screens/playground.js") },
  { path: "rollouts", title: "Rollouts", roles: operators, load: () => import("./screens/rollouts.js") },
  { path: "pipelines", title: "Pipelines", roles: operators, load: () => import("./screens/pipelines.js") },
  { path: "guards", title: "Guards", roles: operators, load: () => import("./screens/guards.js") },
  { path: "batches", title: "Batches", roles: all, load: () => import("./screens/batches.js") },
  { path: "audit", title: "Audit", roles: operators, load: () => import("./screens/audit.js") },
];

export const screensOf = (session) => screens.filter((screen) => screen.roles.includes(session.role));
