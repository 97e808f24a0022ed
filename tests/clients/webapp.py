"""A web app of Flask whose sessions Flask-Session keeps in Redis, or one of Django, with django-redis. Prints the port that
it serves.

    webapp.py flask | django REDIS_PORT SECONDS_A_SESSION_LASTS
"""

import datetime
import sys
import wsgiref.simple_server


def flask_app(port, seconds):
    import flask
    import flask_session
    import redis

    app = flask.Flask("webapp")
    app.config.update(
        SESSION_TYPE="redis",
        SESSION_REDIS=redis.Redis(port=port, socket_timeout=30),
        PERMANENT_SESSION_LIFETIME=datetime.timedelta(seconds=seconds),
    )
    flask_session.Session(app)

    @app.post("/login")
    def login():
        flask.session["name"] = flask.request.get_data(as_text=True)
        app.session_interface.regenerate(flask.session)
        return "welcome"

    @app.get("/me")
    def me():
        if "name" not in flask.session:
            return "nobody", 401
        flask.session["visits"] = flask.session.get("visits", 0) + 1
        return f"{flask.session['name']} {flask.session['visits']}"

    @app.post("/logout")
    def logout():
        flask.session.clear()
        return "goodbye"

    return app


def django_app(port, seconds):
    import django.conf
    import django.core.handlers.wsgi
    import django.http
    import django.urls

    django.conf.settings.configure(
        SECRET_KEY="x",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF="urls",
        MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
        SESSION_ENGINE="django.contrib.sessions.backends.cache",
        SESSION_COOKIE_AGE=seconds,
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": f"redis://127.0.0.1:{port}/0"}},
    )

    def login(request):
        request.session.cycle_key()
        request.session["name"] = request.body.decode()
        return django.http.HttpResponse("welcome")

    def me(request):
        if "name" not in request.session:
            return django.http.HttpResponse("nobody", status=401)
        request.session["visits"] = request.session.get("visits", 0) + 1
        return django.http.HttpResponse(f"{request.session['name']} {request.session['visits']}")

    def logout(request):
        request.session.flush()
        return django.http.HttpResponse("goodbye")

    urls = type(sys)("urls")
    urls.urlpatterns = [django.urls.path(view.__name__, view) for view in (login, me, logout)]
    sys.modules["urls"] = urls
    django.setup()
    return django.core.handlers.wsgi.WSGIHandler()


class Quiet(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


def main():
    framework, port, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    app = {"flask": flask_app, "django": django_app}[framework](port, seconds)
    with wsgiref.simple_server.make_server("127.0.0.1", 0, app, handler_class=Quiet) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
